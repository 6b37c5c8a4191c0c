"""A build of both kinds of ConsumeQueues takes the same memory for a queue with twice as many units, and for more queues."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bench import cases
from tests.scale.test_local_memory import DRIVER, MIB, NOISE, WORKER, watched
from tests.tools.faulty_processes import command

UNITS = 300_000
LOCAL = ("--engine=local", "--master=local[2]")


def peaks_of(folder: Path, units: int, queues: int) -> tuple[int, int]:
    """Of the driver, and of a worker, of a build from a log with a hot queue and small ones."""
    store, out = folder / f"store-{units}", folder / f"out-{units}"
    cases.hot_and_small(store, units, queues, 1 << 27)
    words = command(store, out, *LOCAL, "--consumequeue-type=both", "--only=consumequeue", "--progress=json")
    driver, worker, summary = watched(words, folder / f"build-{units}")
    assert (summary["exit"], summary["units"], summary["error"]) == (0, units + queues, None)
    assert (out / "consumequeue" / "CURRENT").exists()
    shutil.rmtree(store)
    shutil.rmtree(out)
    return driver, worker


def test_twice_as_many_units_and_queues(tmp_path: Path) -> None:
    small, large = peaks_of(tmp_path, UNITS, 2000), peaks_of(tmp_path, 2 * UNITS, 4000)
    print(f"MiB of driver and worker: {[[size // MIB for size in both] for both in (small, large)]}")
    assert large[0] < DRIVER
    assert large[1] < WORKER
    assert large[0] < small[0] + NOISE
    assert large[1] < small[1] + NOISE
