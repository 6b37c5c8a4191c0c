"""Stretches of the log whose items are not in the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LOST_MAX: Final = 1000
"""Stretches of missing items that a task lists one by one; the others are joined to one more."""


@dataclass
class Lost:
    """Items missing one after another."""

    first: int
    last: int
    """phy_offset of the first and of the last one"""
    time_min: int
    time_max: int
    """store times in milliseconds"""
    keys: int
    """how many items"""
    records: int
    """of how many records"""
    opens: bool = False
    """whether it begins where the compared stretch of the log begins"""
    closes: bool = False
    """whether it ends where that ends"""

    def join(self, other: Lost) -> None:
        """Add the items of ``other``, which follow."""
        self.last = other.last
        self.time_min, self.time_max = min(self.time_min, other.time_min), max(self.time_max, other.time_max)
        self.keys += other.keys
        self.records += other.records
        self.closes = other.closes


def listed(stretches: list[Lost]) -> list[Lost]:
    """The first LOST_MAX stretches, and the others as one more."""
    if len(stretches) <= LOST_MAX:
        return stretches
    rest = joined(stretches[LOST_MAX:])
    assert rest is not None
    rest.opens = False
    return [*stretches[:LOST_MAX], rest]


def joined(stretches: Iterable[Lost | None]) -> Lost | None:
    """All stretches, in their order, as one; None for none."""
    whole: Lost | None = None
    for stretch in stretches:
        if whole is None:
            whole = stretch
        elif stretch is not None:
            whole.join(stretch)
    return whole
