"""What reducers say of queues out of order, gone through one by one: there may be as many as there are queues."""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Summary
from rocketmq_reindex.jobs.publishing.parts import few_parts
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.order import BREAKS_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.order.placements import PlanWriter
from rocketmq_reindex.udfs.stage import Stage

Decision = tuple[str, str, int, int, int]
"""(kind, topic, queue id, queue offset, units)"""


def segment_of(segments: list[Segment], offset: int) -> str:
    found = bisect_right(segments, offset, key=lambda segment: segment.start)
    return segments[found - 1].name if found else ""


def _queue(word: dict[str, Any]) -> tuple[str, int]:
    return word["topic"], word["queue"]


def _queue_of(line: bytes) -> tuple[str, int]:
    return _queue(json.loads(line))


def _decisions(word: dict[str, Any]) -> Iterator[Decision]:
    for kind, offset, count in word["decisions"]:
        yield kind, word["topic"], word["queue"], offset, count


@dataclass
class Lowest:
    """The first holes of very many, in order; of the others their number, bytes and farthest end."""

    first: list[Hole] = field(default_factory=list)
    more: int = 0
    more_bytes: int = 0
    more_end: int = 0

    def add(self, hole: Hole) -> None:
        self.first.append(hole)
        if len(self.first) >= 4 * DAMAGE_MAX:
            self.settle()

    def settle(self) -> None:
        """Put what is held in order, no more than one above what is told."""
        self.first.sort(key=lambda hole: (hole.offset, hole.reason))
        for hole in self.first[DAMAGE_MAX + 1 :]:
            self.more, self.more_bytes = self.more + 1, self.more_bytes + hole.length
            self.more_end = max(self.more_end, hole.offset + hole.length)
        del self.first[DAMAGE_MAX + 1 :]


@dataclass
class Verdict:
    """Of all queues out of order: records out of line, fills, and the plans that say where units go."""

    told: Summary = field(default_factory=Summary)
    """their decisions and warnings"""
    lost: Lowest = field(default_factory=Lowest)
    lost_records: int = 0
    filled: int = 0
    opened: list[tuple[str, int, int]] = field(default_factory=list)
    placements: str = ""
    batches: str = ""


class OddQueues:
    """The words of a judgement (``udfs.order.words``), in the order of their queues; ``said`` is what the reducers returned."""

    def __init__(self, stage: Stage, said: list[str]) -> None:
        words = [json.loads(word) for word in said]
        self._stage = stage
        self._parts = few_parts(stage, [word["odd"] for word in words if "odd" in word], _queue_of)
        self.pre_blank: int = sum(word.get("pre_blank", 0) for word in words)
        """units of all queues that stand for no record"""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def words(self) -> Iterator[dict[str, Any]]:
        """Raises RefusedError at a queue that is out of order more often than damage can explain."""
        for word in heapq.merge(*(map(json.loads, files.lines(part)) for part in self._parts), key=_queue):
            if "breaks" in word:
                raise RefusedError(
                    f"queue {escape(word['topic'])}/{word['queue']}: its offsets break {word['breaks']} times"
                    f" (at most {BREAKS_MAX:,}): is this a commitlog? Choose --exclude-topic for its topic"
                )
            yield word

    def decisions(self) -> Iterator[Decision]:
        return (decision for word in self.words() for decision in _decisions(word))

    def verdict(self, segments: list[Segment], name: str) -> Verdict:
        """What all of them come to; the plans are written under ``name``."""
        found = Verdict()
        if not self:
            return found
        stage = self._stage
        units = PlanWriter(stage.temporary, files.join(stage.plans, f"placements-{name}"))
        batches = PlanWriter(stage.temporary, files.join(stage.plans, f"batch-placements-{name}"))

        def taken() -> Iterator[Decision]:
            for word in self.words():
                self._take(found, segments, word)
                (batches if word["batch"] else units).put(word["topic"], word["queue"], word["where"])
                yield from _decisions(word)

        try:
            found.told.add_decisions(taken())
            found.lost.settle()
            found.placements, found.batches = units.finish(), batches.finish()
        except BaseException:
            units.abandon()
            batches.abandon()
            raise
        return found

    @staticmethod
    def _take(found: Verdict, segments: list[Segment], word: dict[str, Any]) -> None:
        """Records out of line, as damage; those of a queue that are not told one by one are one more, with all their bytes."""
        found.filled += word["filled"]
        if word["opened"] >= 0:
            found.opened.append((word["topic"], word["queue"], word["opened"]))
        queue = f"(queue {escape(word['topic'])}/{word['queue']})"
        for place, size in word["lost"]:
            found.lost_records += 1
            found.lost.add(Hole(segment_of(segments, place), place, size, f"{r.OUT_OF_LINE} {queue}"))
        if word["more_lost"]:
            count, place, end, size = word["more_lost"]
            found.lost_records += count
            reason = f"{r.OUT_OF_LINE} {queue}: {counted(count, 'more record')}, up to offset {end}"
            found.lost.add(Hole(segment_of(segments, place), place, size, reason))
