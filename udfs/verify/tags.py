"""What a comparison found of the items of TAGS: where they stand, and which records lack theirs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rocketmq_reindex.storage_format.checks.tags import TagStates
from rocketmq_reindex.udfs.verify.lost import Lost, joined, listed


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
        """The inverse of how JSON holds it."""
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
        """The inverse of how JSON holds it."""
        sides = {name: Side.of_fields(fields[name]) for name in ("before", "behind")}
        return cls(**(fields | sides | {"between": [Lost(**lost) for lost in fields["between"]]}))

    @classmethod
    def of_states(cls, states: TagStates) -> TagsFound:
        """What the rows of one comparison say."""
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
