"""The CRC-32 of the record loop is zlib's, at any length and any place."""

from __future__ import annotations

import random
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage_format.crc32 import crc32


@given(st.binary(max_size=80), st.integers(0, 20), st.integers(0, 20))
def test_equals_zlib(raw: bytes, before: int, after: int) -> None:
    data = np.frombuffer(b"\xaa" * before + raw + b"\xbb" * after, np.uint8)
    assert crc32(data, before, before + len(raw)) == zlib.crc32(raw)


def test_long_runs(seed: int) -> None:
    raw = random.Random(seed).randbytes(300_001)
    data = np.frombuffer(raw, np.uint8)
    for start, end in ((0, len(raw)), (1, len(raw)), (7, 262_144), (5, 5)):
        assert crc32(data, start, end) == zlib.crc32(raw[start:end])
    assert crc32(np.zeros(1 << 20, np.uint8), 0, 1 << 20) == zlib.crc32(bytes(1 << 20))


def test_the_value_everyone_knows() -> None:
    assert crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926
