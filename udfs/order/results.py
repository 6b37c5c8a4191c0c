"""What a task that decides on queue order hands to the driver: the first of what it found in a queue, and sums of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.queue.order import Decision, OutOfLine, Placement
from rocketmq_reindex.udfs.order.placements import PlacementSpan
from rocketmq_reindex.udfs.results import Result

LISTED_MAX: Final = 100
"""Decisions, and records out of line, that are listed one by one for each queue."""


class LostRecord(NamedTuple):
    """One record out of line; ``is_wrong`` as in ``OutOfLine``."""

    phy_offset: int
    size: int
    is_wrong: bool = False


class MoreLost(NamedTuple):
    """The records out of line that are not listed one by one."""

    records: int
    phy_offset: int
    """of the first one"""
    end: int
    """phy_offset behind the last one"""
    size: int
    """bytes of all of them"""


@dataclass
class OrderResult(Result):
    """One result of ``DecideOrder``: a part, or the count of units before the first ones."""

    part: str = ""
    """path of a file with one ``OddQueue`` on each line, by topic and queue id"""
    pre_blank: int = 0
    """units that stand before the first one of a queue in its first file, of all queues"""


@dataclass
class OddQueue(Result):
    """One queue out of order.

    Where ``breaks`` is not 0, the queue is out of order more often than damage can explain, and the rest has its defaults.
    """

    topic: str
    queue: int
    breaks: int = 0
    decisions: list[Decision] = field(default_factory=list)
    """the first ones, and sums of the others (``cap_decisions``)"""
    filled: int = 0
    """units that stand for missing records"""
    opened: int = -1
    """position at which a file without any unit begins; -1: there is none"""
    lost: list[LostRecord] = field(default_factory=list)
    """the first records out of line"""
    more_lost: MoreLost | None = None
    """the other ones; None: there are none"""
    pending: list[LostRecord] = field(default_factory=list)
    """the last records, of which it is not clear whether they are in line"""
    between_lives: list[int] = field(default_factory=list)
    """as in ``Placement``"""
    where: PlacementSpan | None = None
    """where its rows are"""
    batch: bool = False
    """whether it is a batch ConsumeQueue"""
    digest: str = ""
    """equal digests: units of the same records stand at the same positions"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> OddQueue:
        """The queue with these fields, in which tuples are lists."""
        for name, kind in (("decisions", Decision), ("lost", LostRecord), ("pending", LostRecord)):
            fields[name] = [kind(*each) for each in fields[name]]
        for name, one in (("more_lost", MoreLost), ("where", PlacementSpan)):
            fields[name] = one(*fields[name]) if fields[name] else None
        return cls(**fields)


def cap_decisions(decisions: Sequence[Decision], most: int = LISTED_MAX) -> list[Decision]:
    """The first ``most`` decisions, then for each kind of the others ("more KIND", lowest queue offset, sum of units)."""
    rest: dict[str, tuple[int, int]] = {}
    for kind, offset, count in decisions[most:]:
        lowest, total = rest.get(kind, (offset, 0))
        rest[kind] = (min(lowest, offset), total + count)
    return [*decisions[:most], *(Decision(f"more {kind}", *rest[kind]) for kind in sorted(rest))]


def odd_queue(topic: bytes, queue_id: int, placement: Placement) -> OddQueue:
    """The queue with what its placement decides; ``where``, ``batch`` and ``digest`` are for the caller to set."""
    return OddQueue(
        topic.decode(),
        queue_id,
        decisions=cap_decisions(placement.decisions),
        filled=placement.filled,
        opened=placement.opened,
        lost=[LostRecord(one.phy_offset, one.length, one.is_wrong) for one in placement.lost[:LISTED_MAX]],
        pending=[LostRecord(one.phy_offset, one.length) for one in placement.pending],
        between_lives=placement.between_lives,
        more_lost=_more_lost(placement.lost[LISTED_MAX:]),
    )


def _more_lost(rest: Sequence[OutOfLine]) -> MoreLost | None:
    if not rest:
        return None
    first, last = rest[0], rest[-1]
    return MoreLost(len(rest), first.phy_offset, last.phy_offset + last.length, sum(record.length for record in rest))
