"""The checkpoint's bytes, written and read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.checkpoints import SIZE, Checkpoint
from rocketmq_reindex.storage_format.versions import RULES

LONG = st.integers(-(2**63), 2**63 - 1)


@given(st.tuples(LONG, LONG, LONG, LONG, LONG, LONG))
def test_six_longs_and_zeros(fields: tuple[int, int, int, int, int, int]) -> None:
    data = Checkpoint(*fields).to_bytes()
    assert data == b"".join(struct.pack(">q", field) for field in fields) + bytes(SIZE - 48)
    assert Checkpoint.from_bytes(data) == Checkpoint(*fields)
    # A file system may have cut off the zeros, or a newer broker may have put more behind them.
    assert Checkpoint.from_bytes(data[:48]) == Checkpoint.from_bytes(data + b"more") == Checkpoint(*fields)


@pytest.mark.parametrize("length", [0, 8, 40, 47])
def test_too_short(length: int) -> None:
    with pytest.raises(ValueError, match=f"not {length}"):
        Checkpoint.from_bytes(bytes(length))


def test_a_new_store() -> None:
    assert Checkpoint().to_bytes() == bytes(4096)


def test_fields_of_a_version() -> None:
    whole = Checkpoint(1, 2, 3, 4, 5, 6)
    kept = {version: whole.of_version(rules) for version, rules in RULES.items()}
    assert kept == {
        "5.5": whole,
        "5.4": Checkpoint(1, 2, 3, 4, 5),
        "5.3": Checkpoint(1, 2, 3, 4, 5),
        "4.9": Checkpoint(1, 2, 3),
    }
    # With physic set and no offset 5.5 would not load with enableAcceleratedRecovery.
    assert Checkpoint(1, 2, 3, 0, 5).of_version(RULES["5.5"]) == Checkpoint(0, 2, 3, 0, 5)
