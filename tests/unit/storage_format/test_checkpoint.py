"""The checkpoint's bytes, written and read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_reindex.storage_format.checkpoint import SIZE, Checkpoint

LONG = st.integers(-(2**63), 2**63 - 1)


@given(st.tuples(LONG, LONG, LONG, LONG, LONG))
def test_five_longs_and_zeros(fields: tuple[int, int, int, int, int]) -> None:
    data = Checkpoint(*fields).to_bytes()
    assert data == b"".join(struct.pack(">q", field) for field in fields) + bytes(SIZE - 40)
    assert Checkpoint.from_bytes(data) == Checkpoint(*fields)
    # A file system may have cut off the zeros, or a newer broker may have put more behind them.
    assert Checkpoint.from_bytes(data[:40]) == Checkpoint.from_bytes(data + b"more") == Checkpoint(*fields)


@pytest.mark.parametrize("length", [0, 8, 39])
def test_too_short(length: int) -> None:
    with pytest.raises(ValueError, match=f"not {length}"):
        Checkpoint.from_bytes(bytes(length))


def test_a_new_store() -> None:
    assert Checkpoint().to_bytes() == bytes(4096)
