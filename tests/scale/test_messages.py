"""``rr.messages`` takes the same memory for a log three times as large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.bench.template_log import write_log
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
