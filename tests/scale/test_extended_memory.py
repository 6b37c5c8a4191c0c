"""A build and a verify of consumequeue_ext take the same memory for a queue with twice as many units."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.bench import cases
from tests.scale.test_local_memory import DRIVER, MIB, NOISE, WORKER, watched
from tests.tools.faulty_processes import command

UNITS = 300_000

HOT = "topic-000000"
LOCAL = ("--engine=local", "--master=local[2]")


def registered(store: Path) -> None:
    """Two groups on the topic of the hot queue, one of which looks at a value that each message has for itself."""
    groups = {
        name: {"expression": text, "bornTime": 1, "bloomFilterData": {"bitNum": 1024, "bitPos": positions}}
        for name, text, positions in (("all", "KEYS IS NOT NULL", [1, 500, 1023]), ("some", "KEYS > 'k'", [2, 77, 900]))
    }
    (store / "config").mkdir()
    (store / "config" / "consumerFilter.json").write_text(
        json.dumps({"filterDataByTopic": {HOT: {"groupFilterData": groups}}}), encoding="utf-8"
    )


def peaks_of(folder: Path, times: int) -> list[tuple[int, int]]:
    """Those of a build with bit maps of 128 bytes, and of a verify of what it made: of the driver, and of a worker."""
    store, out = folder / f"store-{times}", folder / f"out-{times}"
    cases.hot_and_small(store, times * UNITS, 100, 1 << 27)
    registered(store)
    words = command(store, out, *LOCAL, "--cq-ext=bitmap", "--only=consumequeue", "--progress=json")
    *built, summary = watched(words, folder / f"build-{times}")
    assert (summary["exit"], summary["units"], summary["error"]) == (0, times * UNITS + 100, None)
    files = sorted((out / "consumequeue_ext" / HOT / "0").iterdir())
    assert sum(path.stat().st_size for path in files) >= times * UNITS * (20 + 128)
    words = [sys.executable, "-m", "rocketmq_reindex", "verify", str(out), "--json", *LOCAL, "--only=consumequeue"]
    words += ["--commitlog", str(store / "commitlog"), "--broker-version=5.5", "--progress=json"]
    *verified, summary = watched(words, folder / f"verify-{times}")
    assert (summary["exit"], summary["error"]) == (0, None)
    shutil.rmtree(store)
    shutil.rmtree(out)
    return [(built[0], built[1]), (verified[0], verified[1])]


def test_a_queue_with_twice_as_many_units(tmp_path: Path) -> None:
    small, large = peaks_of(tmp_path, 1), peaks_of(tmp_path, 2)
    print(f"MiB of build and verify, driver and worker: {[[size // MIB for size in both] for both in (*small, *large)]}")
    for before, after in zip(small, large, strict=True):
        assert after[0] < DRIVER
        assert after[1] < WORKER
        assert after[0] < before[0] + NOISE
        assert after[1] < before[1] + NOISE
