"""``rr.messages`` takes the same memory for a log three times as large; a hundred thousand topics in one log."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bench.template_log import KEY_DIGITS, message_of, write_log
from tests.reference import java
from tests.tools.encode import encode
from tests.tools.faulty_processes import PATIENCE, ROOT

MIB = 1 << 20
MOST, NOISE = 768 * MIB, 192 * MIB
"""For two processors: blocks in the making, batches that wait, and what is mapped of the log; malloc's own doing"""
READ = """
import os, sys
# Each processor has blocks of its own in the making.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import rocketmq_reindex as rr
print(sum(batch.num_rows for batch in rr.messages(sys.argv[1])))
# Not ru_maxrss: Linux begins it with the peak of the process before exec, a test run's.
print(int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) << 10)
"""


def peak_of(folder: Path, records: int) -> int:
    """The most memory of a process that reads a log of so many records of 1 KiB."""
    queues = np.random.default_rng(1).integers(0, 64, records).astype(np.int32)
    write_log(folder / "commitlog", queues, queues_a_topic=8, body=866, segment_size=128 * MIB)
    words = [sys.executable, "-c", READ, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    rows, peak = map(int, done.stdout.split())
    assert rows == records
    return peak


def test_a_log_three_times_as_large(tmp_path: Path) -> None:
    small, large = peak_of(tmp_path / "small", 200_000), peak_of(tmp_path / "large", 600_000)
    print(f"{small // MIB} MiB, then {large // MIB} MiB")
    assert large < MOST
    assert large < small + NOISE


ASK = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import rocketmq_reindex as rr
store, key, out = sys.argv[1:4]
told = rr.trace(store, topic="topic-007777", key=key, scan=True).to_dict()["messages"]
groups = rr.consumers(store)
taken = rr.export(store, to=out, format="jsonl")
print(len(told), len(groups), groups.exit_status, taken.to_dict()["messages"], taken.exit_status)
print(int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) << 10)
"""


@pytest.mark.parametrize("topics", [12_500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_hundred_thousand_topics(topics: int, tmp_path: Path) -> None:
    """One message in each: ``trace`` finds one of them, ``consumers`` tells a group in each, ``export`` takes all."""
    store, out = tmp_path / "store", tmp_path / "all.jsonl"
    write_log(store / "commitlog", np.arange(topics, dtype=np.int32), segment_size=64 * MIB)
    size = len(encode(message_of(0, 0, 1, 60), 0))
    for number in range(topics):
        (queue := store / "consumequeue" / f"topic-{number:06d}" / "0").mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(struct.pack(">qiq", number * size, size, java.hash_code("TagA")))
    (store / "config").mkdir()
    table = {f"topic-{number:06d}@G": {"0": number % 2} for number in range(topics)}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    words = [sys.executable, "-c", ASK, str(store), f"{7777:0{KEY_DIGITS}d}", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    said, peak = done.stdout.splitlines()
    print(f"{int(peak) // MIB} MiB")
    assert said == f"1 {topics} 0 {topics} 0"
    assert sum(1 for _ in out.open("rb")) == topics
    assert int(peak) < MOST
