"""The CRC-32 of the record loop is zlib's, at any length and any place."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.kernels.compiler import numba
from rocketmq_reindex.storage_format.kernels.raw_bytes import crc32, crc32_by


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no types
def crc32_by_tables(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """What a processor without carry-less multiplication runs."""
    return crc32_by(data, start, end, False)


Crc = Callable[[npt.NDArray[np.uint8], int, int], int]
both = pytest.mark.parametrize("crc", [crc32, crc32_by_tables])


@both
@given(raw=st.binary(max_size=80), before=st.integers(0, 20), after=st.integers(0, 20))
def test_equals_zlib(crc: Crc, raw: bytes, before: int, after: int) -> None:
    data = np.frombuffer(b"\xaa" * before + raw + b"\xbb" * after, np.uint8)
    assert crc(data, before, before + len(raw)) == zlib.crc32(raw)


@both
def test_every_length_around_the_steps(crc: Crc, seed: int) -> None:
    raw = random.Random(seed).randbytes(400)
    data = np.frombuffer(raw, np.uint8)
    for start in range(18):
        for end in range(start, len(raw) + 1):
            assert crc(data, start, end) == zlib.crc32(raw[start:end]), (start, end)


@both
def test_long_runs(crc: Crc, seed: int) -> None:
    raw = random.Random(seed).randbytes(300_001)
    data = np.frombuffer(raw, np.uint8)
    for start, end in ((0, len(raw)), (1, len(raw)), (7, 262_144), (5, 5)):
        assert crc(data, start, end) == zlib.crc32(raw[start:end])
    assert crc(np.zeros(1 << 20, np.uint8), 0, 1 << 20) == zlib.crc32(bytes(1 << 20))


@both
def test_the_value_everyone_knows(crc: Crc) -> None:
    assert crc(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926
