"""What a task that compares queues needs of the store, and what it hands to the driver."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.storage_format.checks.differences import Example, Tally
from rocketmq_reindex.storage_format.checks.queues import UnitChecker
from rocketmq_reindex.storage_format.queue.cells import UNIT_COLUMNS
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.handover import TaskResult
from rocketmq_reindex.udfs.scan.extended import COLUMNS
from rocketmq_reindex.udfs.verify.queue_files import Int64s, Mask, QueueSlots

QUEUES_LISTED: Final = 1000
"""Queues that are listed one by one: those with differences, then those with the most units."""
MISSING: Final = "queue-unit-missing"
IN_ORDER, LOGICAL, BROKER, REMADE, SKIPPED = "in order", "logical", "broker", "made anew", "skipped"
"""The orders that a queue may have; of a SKIPPED one a sample says too little."""
UNORDERED: Final = "out of order"
"""The order of a queue in RocksDB whose records' queue offsets do not rise: two may be the same, and one unit stands there."""
NOT_COMPARED: Final = (SKIPPED, UNORDERED)
EMPTY_ENDS: Final = "empty ends"
"""Count of queues with an empty file at their end."""
IDLE: Final = "idle"
"""Count of queues with units of expired records only."""


@dataclass(frozen=True)
class QueueTask:
    """What a task needs of the store. All offsets are phy_offsets."""

    folder: str
    """the folder of the queues"""
    file_size: int
    segments: tuple[Segment, ...]
    log: tuple[int, int]
    """where the log begins and ends"""
    unread: tuple[tuple[int, int], ...] = ()
    """stretches [low, high) that a sample leaves out"""
    opens_empty: bool = False
    """whether the broker starts on a last file without a unit, and leaves such files"""
    stale: tuple[int, int] | None = None
    """[low, high) of old records behind the log's end"""
    ext: str = ""
    """the folder ``consumequeue_ext``, where there is one"""
    database: str = ""
    """the folder of the database, where the queues are in RocksDB and not in files"""
    filters: ConsumerFilters | None = None
    """the registrations by which its bit maps are checked; None where neither these nor store times are"""

    @property
    def columns(self) -> int:
        """How many columns the rows of units have."""
        return UNIT_COLUMNS if self.filters is None else COLUMNS + self.filters.words

    def extended(self, held: QueueSlots, topic: str) -> Callable[[Int64s], tuple[Mask, Mask]] | None:
        """Return the check of what a queue has in ``consumequeue_ext`` (``QueueView.extended``); None where there is none."""
        filters = self.filters
        return None if filters is None else lambda rows: held.check_extended(rows, filters, topic)


@dataclass
class QueueEntry:
    """One queue as the summary lists it. Queues are ordered: the greatest ones are listed first."""

    topic: str
    """escaped"""
    queue: int
    units: int
    """units that the log has for it"""
    there: int
    """of those, how many the store has"""
    first: int
    """queue offset of the first one"""
    end: int
    """queue offset behind the last one"""
    folder: bool
    """whether the store has a folder for it"""
    files: int
    order: str
    differences: int
    kinds: dict[str, int]
    """differences by kind"""
    first_bad: int
    """queue offset of the first difference"""

    def __lt__(self, other: QueueEntry) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[bool, int, str]:
        return self.differences > 0, self.units, f"{self.topic}/{self.queue}"


@dataclass
class QueuesResult(TaskResult):
    """What one task found in its queues."""

    tally: Tally = field(default_factory=Tally)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """of queues, of units, and of queues by order"""
    queues: list[QueueEntry] = field(default_factory=list)
    """the QUEUES_LISTED greatest queues, as a heap"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> QueuesResult:
        fields["queues"] = [QueueEntry(**entry) for entry in fields["queues"]]
        return cls(**fields)

    def add(
        self, key: tuple[bytes, int], checked: UnitChecker, queue_files: QueueSlots, order: str, listed: bool, task: QueueTask,
        empty: int | None = None,
    ) -> None:  # fmt: skip
        """Take in the queue ``key``, compared in the order that fits it best.

        ``listed``: the store has a folder for it. ``empty`` is the position of the first slot of an empty file at its end.
        """
        name = escape(key[0].decode("utf-8", "surrogateescape"))
        tally = Tally() if order in NOT_COMPARED else checked.tally
        if empty is not None:
            tally.add("queue-file-empty", 1, queue_files.path(empty), empty, "holds no unit, and the queue goes up to it")
        lost = tally.counts.get(MISSING, 0)
        if lost and not len(queue_files):
            text = f"queue has no {queue_files.lacking(listed)}: {counted(lost, 'unit')} from {checked.named(checked.first)} on"
            tally.replace(MISSING, Example(queue_files.shown, checked.first, text))
        self.counts["queues"] += 1
        self.counts["differing"] += tally.total > 0
        self.counts[order] += 1
        self.counts["units"] += checked.units
        self.counts["there"] += checked.there
        self.counts["stale"] += checked.stale
        if not checked.units and task.log[0] > 0 and not task.unread:
            self.counts[IDLE] += queue_files.holds_expired(task.log[0])
        self.tally.merge(tally)
        entry = QueueEntry(
            topic=name, queue=key[1], units=checked.units, there=checked.there, first=checked.first, end=checked.next,
            folder=listed, files=len(queue_files), order=order, differences=tally.total, kinds=tally.counts,
            first_bad=checked.first_bad,
        )  # fmt: skip
        if len(self.queues) < QUEUES_LISTED:
            heapq.heappush(self.queues, entry)
        else:
            heapq.heappushpop(self.queues, entry)
