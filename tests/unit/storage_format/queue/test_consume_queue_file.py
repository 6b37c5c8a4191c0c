"""Units of one ConsumeQueue file, byte for byte, and the gaps that are never written."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.queue.consume_queue import UnitGapError, file_units
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_SIZE
from tests.reference.consume_queue import pack, queue_files
from tests.reference.queue_order import Unit


def rows_for(positions: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rows = np.array([[p, 10**12 + p, 100 + p % 7, -p] for p in positions], dtype=np.int64).reshape(-1, 4)
    return np.ascontiguousarray(rows.T)


@given(st.integers(1, 12), st.integers(0, 60), st.integers(1, 40), st.randoms())
def test_files_of_a_queue(units_per_file: int, first: int, count: int, rng: random.Random) -> None:
    """Every file of a queue that begins anywhere: pre-blank before the first unit, zeros behind the last."""
    positions = list(range(first, first + count))
    units = {p: pack(Unit(10**12 + p, 100 + p % 7, -p, p)) for p in positions}
    found = {}
    for number in sorted({p // units_per_file for p in positions}):
        mine = [p for p in positions if p // units_per_file == number]
        rng.shuffle(mine)
        cut = rng.randrange(len(mine))
        start, used, image = file_units(
            units_per_file, number, [rows_for(mine[:cut]), rows_for(mine[cut:])] if cut else [rows_for(mine)]
        )
        assert used == len(image.tobytes())
        found[f"consumequeue/T/4/{start:020d}"] = image.tobytes().ljust(units_per_file * UNIT_SIZE, b"\0")
    assert found == queue_files(("T", 4), units, units_per_file * UNIT_SIZE)


def test_pre_blank() -> None:
    _, used, image = file_units(10, 3, [rows_for([33])])
    assert used == 4 * UNIT_SIZE
    assert image.tobytes()[: 3 * UNIT_SIZE] == (bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)) * 3
    assert PRE_BLANK_SIZE == 2**31 - 1


def test_extreme_values() -> None:
    number = (2**63 - 2**40) // 20 // 300_000
    rows = np.array([[number * 300_000], [2**63 - 1], [2**31 - 1], [-(2**63)]], dtype=np.int64)
    start, used, image = file_units(300_000, number, [rows])
    assert (start, used) == (number * 300_000 * 20, 20)
    assert image.tobytes() == bytes([0x7F] + [0xFF] * 7 + [0x7F] + [0xFF] * 3 + [0x80] + [0] * 7)


@pytest.mark.parametrize(
    "positions",
    [[10, 12], [10, 10], [10, 11, 11], [10, 11, 14, 13], [10, 20], [9, 10], [19, 20]],
)
def test_gaps_repeats_and_strangers_are_never_written(positions: list[int]) -> None:
    with pytest.raises(UnitGapError):
        file_units(10, 1, [rows_for(positions)])


def test_a_unit_without_a_size_is_never_written() -> None:
    """A broker takes it for the end of the queue."""
    rows = rows_for([10, 11, 12])
    rows[2, 1] = 0
    with pytest.raises(UnitGapError):
        file_units(10, 1, [rows])
