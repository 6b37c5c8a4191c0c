"""Results of comparing index items: stretches whose items are lost, and records that lack items of TAGS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rocketmq_reindex.storage_format.checks.items import TagStates

# ------------------------------------------------------------------------------------------------------------------- lost items
# Stretches of the log whose items are not in the index.

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


def put(stretches: list[Lost], following: Lost) -> None:
    """Put one more stretch behind the others; one that ends where a task's share of the log ends may go on in it."""
    if stretches and stretches[-1].closes and following.opens:
        stretches[-1].join(following)
    else:
        stretches.append(following)


def listed(stretches: list[Lost]) -> list[Lost]:
    """Return the first LOST_MAX stretches, and the others as one more."""
    if len(stretches) <= LOST_MAX:
        return stretches
    others = joined(stretches[LOST_MAX:])
    assert others is not None
    others.opens = False
    return [*stretches[:LOST_MAX], others]


def joined(stretches: Iterable[Lost | None]) -> Lost | None:
    """Return all stretches, in their order, as one; None for none."""
    whole: Lost | None = None
    for stretch in stretches:
        if whole is None:
            whole = stretch
        elif stretch is not None:
            whole.join(stretch)
    return whole


# ------------------------------------------------------------------------------------------------------------------------- tags
# What a comparison found of the items of TAGS: where they stand, and which records lack theirs.


@dataclass
class Side:
    """The records without their tag item before the first that stands, or behind the last: ``old`` of them have all their
    keys, ``gone`` lack a key, too."""

    lost: Lost | None = None
    old: int = 0
    gone: int = 0

    def add(self, other: Side) -> None:
        """Add the records of ``other``, which follow."""
        self.lost = joined([self.lost, other.lost])
        self.old += other.old
        self.gone += other.gone

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Side:
        """Return the object that such JSON holds."""
        return cls(Lost(**fields["lost"]) if fields["lost"] else None, fields["old"], fields["gone"])

    @property
    def is_older(self) -> bool:
        """Whether a broker before 5.4 wrote these: their keys are there, so the files that held them are, too."""
        return self.old > self.gone

    @property
    def count(self) -> int:
        """How many records."""
        return self.lost.records if self.lost else 0


@dataclass
class TagsFound:
    """Records with TAGS in a stretch of the log: ``standing`` of ``count`` have their tag item."""

    count: int = 0
    standing: int = 0
    first: int = -1
    last: int = -1
    """phy_offset of the first and of the last record whose tag item stands, -1 for none"""
    before: Side = field(default_factory=Side)
    """all that lack one, where none stands"""
    between: list[Lost] = field(default_factory=list)
    """stretches that lack one between the first that stands and the last"""
    behind: Side = field(default_factory=Side)

    def add(self, other: TagsFound) -> None:
        """Add the records of ``other``, which follow."""
        self.count += other.count
        if not other.standing:
            (self.behind if self.standing else self.before).add(other.before)
            return
        if self.standing:
            self.behind.add(other.before)
            self.between += [self.behind.lost] if self.behind.lost else []
        else:
            self.before.add(other.before)
            self.first = other.first
        self.between = listed([*self.between, *other.between])
        self.standing += other.standing
        self.last, self.behind = other.last, other.behind

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> TagsFound:
        """Return the object that such JSON holds."""
        sides = {name: Side.of_fields(fields[name]) for name in ("before", "behind")}
        return cls(**(fields | sides | {"between": [Lost(**lost) for lost in fields["between"]]}))

    @classmethod
    def of_states(cls, states: TagStates) -> TagsFound:
        """Return what the rows of one comparison say."""
        count, stands = len(states.phy_offset), np.flatnonzero(states.stands)
        if not len(stands):
            return cls(count, before=_side(states, 0, count))
        first, last = int(stands[0]), int(stands[-1])
        lacking = np.flatnonzero(states.lacks[first:last]) + first
        runs = np.split(lacking, np.flatnonzero(np.diff(lacking) != 1) + 1) if len(lacking) else []
        between = [_side(states, int(run[0]), int(run[-1]) + 1).lost for run in runs]
        return cls(
            count,
            len(stands),
            int(states.phy_offset[first]),
            int(states.phy_offset[last]),
            _side(states, 0, first),
            listed([lost for lost in between if lost]),
            _side(states, last + 1, count),
        )


def _side(states: TagStates, low: int, high: int) -> Side:
    rows = np.flatnonzero(states.lacks[low:high]) + low
    if not len(rows):
        return Side()
    phy_offset, time = states.phy_offset[rows], states.time[rows]
    records = len(np.unique(phy_offset))
    lost = Lost(int(phy_offset[0]), int(phy_offset[-1]), int(time.min()), int(time.max()), len(rows), records)
    return Side(lost, int(states.old[rows].sum()), int(states.gone[rows].sum()))
