"""A build by processes of this machine takes the same memory in each of them for a log twice as large."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

from tests.bench import cases
from tests.bench.steps import own_memory
from tests.tools.faulty_processes import command, in_session, running

MIB = 1 << 20
DRIVER, WORKER = 256 * MIB, 384 * MIB
NOISE = 64 * MIB
"""malloc's own doing"""
LIST = 0.05
"""Seconds from one look for new processes to the next"""


def watched(words: list[str], folder: Path) -> tuple[int, int, dict[str, Any]]:
    """The most memory of the driver, and of the process that has most of the others; and what the command says at its end."""
    driver, worker, known, looked = 0, 0, list[int](), 0.0
    with running(words, folder) as run:
        while run.process.poll() is None:
            if time.monotonic() - looked > LIST:
                # It reads of each process of this machine.
                known, looked = list(in_session(run.process.pid)), time.monotonic()
            for pid in known:
                # It may end while it is looked at.
                with contextlib.suppress(OSError):
                    if pid == run.process.pid:
                        driver = max(driver, own_memory(pid))
                    else:
                        worker = max(worker, own_memory(pid))
            time.sleep(0.002)
        return driver, worker, run.summary()


def peaks_of(folder: Path, times: int) -> tuple[int, int]:
    """Those of a build."""
    store, out = folder / f"store-{times}", folder / f"out-{times}"
    cases.hot_and_small(store, times * 550_000, times * 250, 1 << 27)
    words = command(store, out, "--engine=local", "--master=local[2]", "--index-items=550000", "--progress=json")
    driver, worker, summary = watched(words, folder / f"run-{times}")
    assert (summary["exit"], summary["units"], summary["error"]) == (0, times * 550_250, None)
    shutil.rmtree(store)
    shutil.rmtree(out)
    return driver, worker


def test_a_log_twice_as_large(tmp_path: Path) -> None:
    small, large = peaks_of(tmp_path, 1), peaks_of(tmp_path, 2)
    print(f"MiB of driver and worker: {[size / MIB for size in small]}, then {[size / MIB for size in large]}")
    assert large[0] < DRIVER
    assert large[1] < WORKER
    assert large[0] < small[0] + NOISE
    assert large[1] < small[1] + NOISE
