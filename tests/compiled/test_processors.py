"""Loops on a processor that lacks what they would use: each is compiled by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib

import pytest


@pytest.mark.parametrize(
    ("lacking", "setting"),
    [
        ("c.CAN_FOLD, c.fold = False, None", {}),
        ("c.FOLDS_WIDE = False", {}),
        ("assert not c.FOLDS_WIDE", {"NUMBA_ENABLE_AVX": "0"}),
        ("assert not c.CAN_FOLD", {"NUMBA_CPU_NAME": "generic"}),
    ],
)
def test_a_processor_without_the_instruction(lacking: str, setting: dict[str, str]) -> None:
    """The loop compiles without it, too: what is not there must not be asked for."""
    code = (
        f"import rocketmq_reindex.storage_format.kernels.compiler as c; {lacking}\n"
        "import numpy as np; from rocketmq_reindex.storage_format.kernels.raw_bytes import crc32\n"
        "data = np.arange(1024, dtype=np.int64).astype(np.uint8)\n"
        "print([crc32(data, 20, end) for end in range(20, 1024)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900, env=os.environ | setting
    )
    data = bytes(k % 256 for k in range(1024))
    assert json.loads(done.stdout) == [zlib.crc32(data[20:end]) for end in range(20, 1024)]
