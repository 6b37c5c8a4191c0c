"""The loops over units: how far a file is valid, where a cut ends, where the min offset is found by halves."""

from __future__ import annotations

import bisect

import numpy as np
import pytest

from rocketmq_reindex.storage_format.broker_start import unit_kernels as k
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE


def content(offsets: list[int], tail: int = 0) -> k.FileContent:
    """A file of units of 7 bytes each; the last ``tail`` of them are of this start, and not in the file's bytes."""
    units = np.zeros(len(offsets), UNIT)
    units["phy_offset"], units["size"] = offsets, 7
    kept = len(offsets) - tail
    units["phy_offset"][kept:] = -1
    return k.FileContent(
        units.view(np.uint8), kept * UNIT_SIZE, np.array(offsets[kept:], np.int64), np.full(tail, 7, np.int32)
    )  # fmt: skip


@pytest.mark.parametrize("tail", [0, 2])
@pytest.mark.parametrize("count", range(2, 10))
def test_the_first_unit_that_is_not_too_low(count: int, tail: int) -> None:
    """For each number of units, each beginning and each place: every way that halving can go."""
    offsets = list(range(10, 10 * count + 1, 10))
    file, end = content(offsets, tail), count * UNIT_SIZE
    for lowest in range(5, 10 * count + 6, 5):
        first = bisect.bisect_left(offsets, lowest)
        assert k.first_min(file, end, lowest) == (first * UNIT_SIZE if first < count else -1)
        for start in range(first + 1):
            if start < count:
                found = k.search_min(file, start * UNIT_SIZE, end, lowest)
                assert found == (first * UNIT_SIZE if first < count else -1), (start, lowest)


def test_only_units_before_the_end_are_looked_at() -> None:
    file = content([10, 20, 30, 40])
    for end in (1, 2, 3):
        assert k.first_min(file, end * UNIT_SIZE, 40) == k.search_min(file, 0, end * UNIT_SIZE, 40) == -1
        assert k.first_min(file, end * UNIT_SIZE, 10 * end) == k.search_min(file, 0, end * UNIT_SIZE, 10 * end)


def test_of_units_with_the_same_offset_the_one_that_halving_meets() -> None:
    """``correctMinOffset`` stops at the middle unit: what stands before it with the same offset stays out."""
    file = content([10, 20, 20, 20, 30])
    assert k.search_min(file, 0, 5 * UNIT_SIZE, 20) == 2 * UNIT_SIZE
    assert k.first_min(file, 5 * UNIT_SIZE, 20) == UNIT_SIZE


def test_where_offsets_fall_halving_decides() -> None:
    file = content([50, 10, 20, 30, 5, 60])
    assert k.search_min(file, 0, 6 * UNIT_SIZE, 25) == 3 * UNIT_SIZE
    assert k.search_min(file, 0, 6 * UNIT_SIZE, 35) == 5 * UNIT_SIZE


@pytest.mark.parametrize(("sizes", "valid"), [([7, 7, 7], 3), ([7, 0, 7], 1), ([7, -1, 7], 1), ([0, 7, 7], 0)])
def test_a_file_is_valid_up_to_the_first_unit_without_a_size(sizes: list[int], valid: int) -> None:
    units = np.zeros(3, UNIT)
    units["phy_offset"], units["size"] = [0, 7, 14], sizes
    assert k.valid_prefix(units.view(np.uint8), UNIT_SIZE) == valid
    assert k.count_valid(units.view(np.uint8), 0, UNIT_SIZE) == sum(size > 0 for size in sizes)
    assert k.count_valid(units.view(np.uint8), UNIT_SIZE, UNIT_SIZE) == sum(size > 0 for size in sizes[1:])


def test_a_cut_keeps_units_before_it() -> None:
    file, size = content([0, 7, 14]), 3 * UNIT_SIZE
    assert k.cut_file(file, size, 14) == (2 * UNIT_SIZE, 14)
    assert k.cut_file(file, size, 15) == (3 * UNIT_SIZE, 21)
    assert k.cut_file(file, size, 8) == (2 * UNIT_SIZE, 14)
    assert k.cut_file(file, size, 7) == (UNIT_SIZE, 7)
    assert k.cut_file(file, size, 1) == (UNIT_SIZE, 7)
    assert k.cut_file(file, size, 0) == (0, 0)
    assert k.cut_file(content([0, -1, 14]), size, 100) == (UNIT_SIZE, 7)
