"""Bytes, words and sums of compiled loops, against plain Python, at any length and any place: the CRC-32 is zlib's."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.kernels.compiler import numba
from rocketmq_reindex.storage_format.kernels.raw_bytes import (
    BLOCK,
    byte_at,
    crc32,
    crc32_by,
    find_byte,
    int16_at,
    int32_at,
    int64_at,
)
from tests.tools.strategies import embedded

# -- CRC-32 ---------------------------------------------------------------------------------------------------


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


# -- words and bytes ------------------------------------------------------------------------------------------


@given(st.binary(min_size=16, max_size=16))
@example(b"\xff" * 16)
@example(b"\x7f" + b"\xff" * 15)
def test_integers_are_big_endian_and_signed(raw: bytes) -> None:
    data = np.frombuffer(raw, np.uint8)
    for at in range(8):
        assert byte_at(data, at) == raw[at]
        assert int16_at(data, at) == struct.unpack_from(">h", raw, at)[0]
        assert int32_at(data, at) == struct.unpack_from(">i", raw, at)[0]
        assert int64_at(data, at) == struct.unpack_from(">q", raw, at)[0]


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 31, 32, 33, 127, 128, 255]), max_size=200).map(bytes),
    st.sampled_from([(1, 2), (2, 2), (32, 32), (0, 0), (128, 255), (0, 255), (255, 255)]),
    st.sampled_from([0, 1, BLOCK - 1, BLOCK, 200]),
)
@example(b"", (0, 255), BLOCK)
@example(b"\x03" * BLOCK + b"\x01", (1, 2), BLOCK)
def test_a_byte_is_found_where_it_first_stands(raw: bytes, sought: tuple[int, int], room: int) -> None:
    low, high = sought
    data, start, end = embedded(raw, before=bytes([low]), after=bytes([low]), room=room)
    expected = next((start + k for k, byte in enumerate(raw) if low <= byte <= high), end)
    assert find_byte(data, start, end, low, high) == expected


@pytest.mark.parametrize("at", range(0, 3 * BLOCK, 7))
def test_a_byte_is_found_in_any_block(at: int) -> None:
    data = np.full(4 * BLOCK, 7, np.uint8)
    data[at] = 2
    for start in range(0, at + 1, 11):
        assert find_byte(data, start, 3 * BLOCK, 1, 2) == at
