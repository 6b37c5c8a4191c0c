"""Words and bytes that compiled loops read at once, against plain Python: near the end of an array, too."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.kernels.raw_bytes import BLOCK, byte_at, find_byte, int16_at, int32_at, int64_at
from tests.tools.strategies import embedded


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
