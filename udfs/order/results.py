"""What a task that decides on queue order hands to the driver: the first of what it found in a queue, and sums of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.storage_format.queue.order import Placement
from rocketmq_reindex.udfs.results import Result

LISTED_MAX: Final = 100
"""Decisions, and records out of line, that are listed one by one for each queue."""
Decision = tuple[str, int, int]
"""(kind, queue offset, units)"""


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
    lost: list[list[int]] = field(default_factory=list)
    """[phy_offset, bytes] of the first records out of line"""
    more_lost: list[int] = field(default_factory=list)
    """of the other ones [count, phy_offset of the first, end of the last, bytes]; empty: there are none"""
    where: list[Any] = field(default_factory=list)
    """the fields of a ``PlacementSpan``: where its rows are"""
    batch: bool = False
    """whether it is a batch ConsumeQueue"""
    digest: str = ""
    """equal digests: units of the same records stand at the same positions"""


def cap_decisions(decisions: Sequence[Decision], most: int = LISTED_MAX) -> list[Decision]:
    """The first ``most`` decisions, then for each kind of the others ("more KIND", lowest queue offset, sum of units)."""
    rest: dict[str, tuple[int, int]] = {}
    for kind, offset, count in decisions[most:]:
        lowest, total = rest.get(kind, (offset, 0))
        rest[kind] = (min(lowest, offset), total + count)
    return [*decisions[:most], *((f"more {kind}", *rest[kind]) for kind in sorted(rest))]


def odd_queue(topic: bytes, queue_id: int, placement: Placement) -> OddQueue:
    """The queue with what its placement decides; ``where``, ``batch`` and ``digest`` are for the caller to set."""
    rest = placement.lost[LISTED_MAX:]
    return OddQueue(
        topic.decode(),
        queue_id,
        decisions=cap_decisions(placement.decisions),
        filled=placement.filled,
        opened=placement.opened,
        lost=[[phy_offset, size] for phy_offset, size, _ in placement.lost[:LISTED_MAX]],
        more_lost=[len(rest), rest[0][0], rest[-1][0] + rest[-1][1], sum(size for _, size, _ in rest)] if rest else [],
    )
