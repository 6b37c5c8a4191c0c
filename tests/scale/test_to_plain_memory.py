"""``repair --to-plain`` takes the same memory for a log of DLedger that is twice as long."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bench import cases
from tests.scale.test_local_memory import DRIVER, MIB, NOISE, WORKER, watched
from tests.tools.dledger_log import as_dledger
from tests.tools.faulty_processes import command

MESSAGES, SEGMENT = 300_000, 1 << 25


def peaks_of(folder: Path, times: int) -> tuple[int, int]:
    """Those of the driver, and of the process that has most of the others."""
    plain, store, out = folder / f"plain-{times}", folder / f"store-{times}", folder / f"out-{times}"
    cases.hot_and_small(plain, times * MESSAGES, 100, SEGMENT)
    as_dledger(plain / "commitlog", store, SEGMENT)
    shutil.rmtree(plain)
    words = command(store, out, "--to-plain", "--engine=local", "--master=local[2]", "--progress=json", name="repair")
    driver, worker, summary = watched(words, folder / f"run-{times}")
    assert (summary["exit"], summary["units"], summary["error"]) == (0, times * MESSAGES + 100, None)
    assert len(list((out / "commitlog").iterdir())) > 1
    shutil.rmtree(store)
    shutil.rmtree(out)
    return driver, worker


def test_a_log_twice_as_long(tmp_path: Path) -> None:
    small, large = peaks_of(tmp_path, 1), peaks_of(tmp_path, 2)
    print(f"MiB of driver and worker: {[size / MIB for size in small]}, then {[size / MIB for size in large]}")
    assert large[0] < DRIVER
    assert large[1] < WORKER
    assert large[0] < small[0] + NOISE
    assert large[1] < small[1] + NOISE
