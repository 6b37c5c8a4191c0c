"""``preflight`` runs on the broker's host before its start: it takes the same memory for a log twice as large."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench import cases
from tests.bench.steps import own_memory
from tests.bench.template_log import write_log
from tests.tools.encode import Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

MIB = 1 << 20
BOUND = 256 * MIB
BARE = 72 * MIB
"""What a preflight of a few queues takes, and some room"""
QUEUES = 100_000
NOISE = 64 * MIB
"""malloc's own doing"""


def peak_of(store: Path, scratch: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """The most memory of a preflight after an unclean stop, and what it says."""
    words = [
        sys.executable,
        "-m",
        "rocketmq_reindex",
        "preflight",
        str(store),
        "--abort=yes",
        "--broker-version=5.3.3",
        "--json",
        *more,
    ]
    most, said = 0, scratch / "said"
    with said.open("wb") as out, subprocess.Popen(words, stdout=out) as process:
        while process.poll() is None:
            most = max(most, own_memory(process.pid))
            time.sleep(0.01)
    return most, json.loads(said.read_bytes())


def test_a_log_twice_as_large(tmp_path: Path) -> None:
    """All of it is dispatched again, and compared with what the queue and the index then have."""
    peaks = []
    for times in (1, 2):
        store = tmp_path / f"store-{times}"
        cases.hot_and_small(store, times * 1_200_000, times * 500, 1 << 27)
        peak, said = peak_of(store, tmp_path)
        records = times * 1_200_500
        assert (said["exit"], said["error"]) == (0, None)
        assert (said["dispatch"]["records"], said["dispatch"]["hidden_records"]) == (records, 0)
        assert (said["dispatch"]["items"], said["index"]["items_missing"]) == (2 * records, 0)
        peaks.append(peak)
        shutil.rmtree(store)
    print(f"MiB: {[peak // MIB for peak in peaks]}")
    assert max(peaks) < BOUND
    assert peaks[1] < peaks[0] + NOISE


@pytest.mark.parametrize(
    ("queues", "built"),
    [
        (QUEUES // 8, False),
        (QUEUES // 16, True),
        *(pytest.param(QUEUES, built, marks=pytest.mark.slow) for built in (False, True)),
    ],
)
def test_a_hundred_thousand_queues(queues: int, built: bool, tmp_path: Path) -> None:
    """All of them are made by the start, or are there: neither takes an object of Python for each all the time.

    All of them take minutes: here a part, with as much memory for each. `make slow` has all.
    """
    store = tmp_path / "store"
    cases.many_queues(store, queues)
    sizes = []
    if built:
        local_build(store, tmp_path / "out", broker_version="5.3", cq_file_size=400)
        for part in ("consumequeue", "index", "checkpoint"):
            (tmp_path / "out" / part).rename(store / part)
        sizes = ["--cq-file-size=400"]
    peak, said = peak_of(store, tmp_path, *sizes)
    assert (said["exit"], said["error"], len(said["queues"])) == (0, None, queues)
    assert {(queue["max_offset"], queue["units_added"]) for queue in said["queues"]} == {(1, not built)}
    print(f"MiB: {peak // MIB}")
    assert peak < BARE + (BOUND - BARE) * queues // QUEUES


@pytest.mark.parametrize(("count", "most"), [(QUEUES // 10, 40), pytest.param(QUEUES, 20, marks=pytest.mark.slow)])
def test_more_records_in_a_hundred_thousand_queues(count: int, most: int, tmp_path: Path) -> None:
    """Each part of the log has few records of each queue: what is done for a queue is done once, and not for each part."""
    cases.many_queues(tmp_path / "small", 8)
    peak_of(tmp_path / "small", tmp_path)  # compiles the loops, once
    peaks, seconds = [], []
    for times in (5, most):
        store, rng = tmp_path / f"store-{times}", np.random.default_rng(times)
        queues = np.concatenate([rng.permutation(count) for _ in range(times)]).astype(np.int32)
        write_log(store / "commitlog", queues, queues_a_topic=8, segment_size=1 << 28)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, said = peak_of(store, tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        records = times * count
        assert (said["exit"], said["error"], len(said["queues"])) == (0, None, count)
        assert {(queue["max_offset"], queue["units_added"], queue["hidden"]) for queue in said["queues"]} == {(times, times, 0)}
        assert (said["dispatch"]["items"], said["index"]["items_missing"]) == (2 * records, 0)
        peaks.append(peak)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        shutil.rmtree(store)
    print(f"MiB: {[peak // MIB for peak in peaks]}, seconds of processor time: {seconds}")
    assert max(peaks) < BOUND
    assert peaks[1] < peaks[0] + NOISE
    assert seconds[1] < 2.5 * seconds[0]


def test_queues_whose_first_file_begins_with_blanks(tmp_path: Path) -> None:
    """A broker fills it with units that stand for none: 299,999 of them here, in each of 300 queues."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 17) as writer:
        for queue in range(300):
            writer.append(Message("T", queue_id=queue, queue_offset=299_999, body=b"x"))
    peak, said = peak_of(tmp_path / "store", tmp_path)
    assert {(queue["min_offset"], queue["max_offset"], queue["units_added"]) for queue in said["queues"]} == {
        (299_999, 300_000, 1)
    }
    print(f"MiB: {peak // MIB}")
    assert peak < BOUND
