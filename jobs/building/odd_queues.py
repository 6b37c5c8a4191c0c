"""Go through the queues out of order one by one: there may be as many as there are queues."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Summary
from rocketmq_reindex.jobs.publishing.parts import few_parts
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.order import BREAKS_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.order.placements import PlanWriter
from rocketmq_reindex.udfs.order.results import OddQueue, OrderResult
from rocketmq_reindex.udfs.staging import StagingFolder


class Decision(NamedTuple):
    """One decision about the order of a queue."""

    kind: str
    topic: str
    queue: int
    offset: int
    """queue offset of the first unit"""
    units: int


class EmptyFile(NamedTuple):
    """A ConsumeQueue file without any unit, at a queue's end."""

    topic: str
    queue: int
    position: int
    """queue offset of the file's first slot"""


def segment_of(segments: list[Segment], offset: int) -> str:
    """The name of the segment that has a phy_offset; "" when it lies before all of them."""
    found = bisect_right(segments, offset, key=lambda segment: segment.start)
    return segments[found - 1].name if found else ""


def _key(queue: OddQueue) -> tuple[str, int]:
    return queue.topic, queue.queue


def _decisions(queue: OddQueue) -> Iterator[Decision]:
    for kind, offset, count in queue.decisions:
        yield Decision(kind, queue.topic, queue.queue, offset, count)


@dataclass
class FirstHoles:
    """The first ones of very many holes, in order; of the others their number, their bytes and the farthest end."""

    first: list[Hole] = field(default_factory=list)
    more: int = 0
    more_bytes: int = 0
    more_end: int = 0

    def add(self, hole: Hole) -> None:
        """Take in one more hole."""
        self.first.append(hole)
        if len(self.first) >= 4 * DAMAGE_MAX:
            self.settle()

    def settle(self) -> None:
        """Sort the holes, and keep only one more than the summary lists."""
        self.first.sort(key=lambda hole: (hole.offset, hole.reason))
        for hole in self.first[DAMAGE_MAX + 1 :]:
            self.more, self.more_bytes = self.more + 1, self.more_bytes + hole.length
            self.more_end = max(self.more_end, hole.offset + hole.length)
        del self.first[DAMAGE_MAX + 1 :]


@dataclass
class OrderOutcome:
    """What the decisions on all queues out of order amount to."""

    notes: Summary = field(default_factory=Summary)
    """decisions and warnings, for the summary of the run"""
    lost: FirstHoles = field(default_factory=FirstHoles)
    """records out of line, as damage"""
    lost_records: int = 0
    filled: int = 0
    """units that stand for missing records"""
    opened: list[EmptyFile] = field(default_factory=list)
    placements: str = ""
    """the plan (``PlanWriter``) of plain queues; empty where none is out of order"""
    batches: str = ""
    """the plan of batch queues"""


class OddQueues:
    """The queues out of order, by topic and queue id; ``results`` are those of all tasks (``DecideOrder``)."""

    def __init__(self, staging: StagingFolder, results: list[OrderResult]) -> None:
        self._staging = staging
        parts = [result.part for result in results if result.part]
        self._parts = few_parts(staging, parts, lambda line: _key(OddQueue.from_json(line)))
        self.pre_blank = sum(result.pre_blank for result in results)
        """units that stand before the first one of a queue in its first file, of all queues"""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def queues(self) -> Iterator[OddQueue]:
        """The queues. Raises RefusedError at one that is out of order more often than damage can explain."""
        for queue in heapq.merge(*(map(OddQueue.from_json, files.lines(part)) for part in self._parts), key=_key):
            if queue.breaks:
                raise RefusedError(
                    f"queue {escape(queue.topic)}/{queue.queue}: its offsets break {queue.breaks} times"
                    f" (at most {BREAKS_MAX:,}): is this a commitlog? Choose --exclude-topic for its topic"
                )
            yield queue

    def wrong_places(self) -> tuple[int, ...]:
        """Return the offsets of records whose queue offsets are sure to be wrong: of those out of line a repair mends these."""
        return tuple(one.phy_offset for queue in self.queues() for one in queue.lost if one.is_wrong)

    def decisions(self) -> Iterator[Decision]:
        """The decisions on all queues."""
        return (decision for queue in self.queues() for decision in _decisions(queue))

    def outcome(self, segments: list[Segment], name: str, most: int = INT64_MAX) -> OrderOutcome:
        """What the decisions on all queues amount to; the plans are written under ``name``.

        A queue that would take more than ``most`` fills is not in them.
        """
        found = OrderOutcome()
        if not self:
            return found
        staging = self._staging
        units = PlanWriter(staging.temporary, files.join(staging.plans, f"placements-{name}"))
        batches = PlanWriter(staging.temporary, files.join(staging.plans, f"batch-placements-{name}"))

        def taken() -> Iterator[Decision]:
            for queue in self.queues():
                self._take(found, segments, queue)
                if queue.filled <= most:
                    (batches if queue.batch else units).put(queue.topic, queue.queue, queue.where)
                yield from _decisions(queue)

        try:
            found.notes.add_decisions(taken())
            found.lost.settle()
            found.placements, found.batches = units.finish(), batches.finish()
        except BaseException:
            units.abandon()
            batches.abandon()
            raise
        return found

    @staticmethod
    def _take(found: OrderOutcome, segments: list[Segment], queue: OddQueue) -> None:
        """Add one queue; its records out of line that are not listed one by one are one more hole, with all their bytes."""
        found.filled += queue.filled
        if queue.opened >= 0:
            found.opened.append(EmptyFile(queue.topic, queue.queue, queue.opened))
        name = f"(queue {escape(queue.topic)}/{queue.queue})"
        for one in queue.lost:
            found.lost_records += 1
            segment = segment_of(segments, one.phy_offset)
            found.lost.add(Hole(segment, one.phy_offset, one.size, f"{r.OUT_OF_LINE} {name}"))
        if queue.more_lost:
            count, phy_offset, end, size = queue.more_lost
            found.lost_records += count
            reason = f"{r.OUT_OF_LINE} {name}: {counted(count, 'more record')}, up to offset {end}"
            found.lost.add(Hole(segment_of(segments, phy_offset), phy_offset, size, reason))
