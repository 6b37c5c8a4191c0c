"""Sizes and constants of the timer files."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, MAGIC_BLANK, SLOT, WHEEL_SIZE, units_per_file


def test_sizes() -> None:
    assert (LOG_UNIT.itemsize, SLOT.itemsize, WHEEL_SIZE) == (52, 32, 38_707_200)


def test_the_magic_of_a_blank_unit() -> None:
    """``0xBBCCDDEE ^ 1880681586 + 8``: + binds tighter than ^ in Java."""
    assert MAGIC_BLANK == 0xCBD43194 - 2**32


@pytest.mark.parametrize("size", [52, 67, 68, 69, 119, 120, 121, 4096, 100 << 20])
def test_units_of_a_file(size: int) -> None:
    """``TimerLog.append`` goes to the next file where no unit and blank one fit."""
    count, place = 0, 0
    while size - place >= 52 + 16:
        count, place = count + 1, place + 52
    assert units_per_file(size) == count
    assert not count or size - place >= 16
