"""Lengths that lie cost no memory: less than 64 MiB more than the scan of an undamaged segment takes."""

from __future__ import annotations

import subprocess
import sys

EXTRA_MAX = 64 << 10
"""KiB"""


def test_lying_lengths_take_no_memory() -> None:
    run = subprocess.run([sys.executable, "-m", "tests.fault.memory"], capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    plain, spoilt, allocated = (int(word) for word in run.stdout.split())
    print(f"peak {plain} KiB undamaged, {spoilt} KiB with lying lengths; {allocated} KiB more allocated at once")
    assert spoilt - plain < EXTRA_MAX
    assert allocated < EXTRA_MAX
