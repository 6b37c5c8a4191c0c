"""The tasks that compare queues: what each needs of the store, what it gets, and what it hands to the driver.

A task gets all units of a queue in the order of the log, and the queue's files.
"""

from __future__ import annotations

import heapq
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.differences import Example, Tally
from rocketmq_reindex.storage_format.checks.queues import UnitChecker
from rocketmq_reindex.storage_format.layouts import first_byte, is_number, queue_id
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.cells import UNIT_COLUMNS
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, Segment
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import TaskResult
from rocketmq_reindex.udfs.scan.extended import COLUMNS, QUEUE_BUCKETS, Matcher, extended_units
from rocketmq_reindex.udfs.scan.ranges import BlockCells, RowPieces, ScanTask
from rocketmq_reindex.udfs.verify.queue_files import Int64s, Mask, QueueSlots

# ---------------------------------------------------------------------------------------------------------------- queue results


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
class BesideFiles:
    """What a store has in RocksDB that has ConsumeQueue files, too."""

    alone: bool = False
    """whether a queue there has no file"""
    light_alone: bool = False
    """whether no light queue has files, and one is there (``combineCQUseRocksdbForLmq``, 5.5.1)"""
    lite: frozenset[str] | None = None
    """the lite topics, where it has units of their records alone (``rocksdbCQSelectiveDoubleWriteEnable``, 5.5.1), in their own
    queues and in the light ones that they name"""
    new: bool = False
    """whether it has no queue and no unit: as it starts, a broker puts units of the newest segments there, none of older ones
    (``CombineConsumeQueueStore.isMappedFileMatchedRecover``)"""


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
    """the folder of the database, where queues are in RocksDB"""
    beside: BesideFiles | None = None
    """what is in RocksDB, where there are files, too"""
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

    def add_beside(self, tally: Tally) -> None:
        """Take in what differs in RocksDB of a queue that ``add`` took in without its files."""
        for kind, count in tally.counts.items():
            for number, example in enumerate(tally.examples[kind]):
                text = f"in RocksDB: {example.text}"
                self.tally.add(kind, 1 if number else count + 1 - len(tally.examples[kind]), example.where, example.at, text)


# ------------------------------------------------------------------------------------------------------------------------- scan
# The scan of a verify. Unlike a build's, it sends all units of a queue to one task, in the order of the log.

GROUPS: Final = 4096
"""Buckets that queues are spread over, each as a whole; a reducing task has the queues of one bucket open at a time."""
ANY_FILE: Final = 1 << 62
"""Units in a file where files do not matter."""
FILES_FIRST, RUNS_NEXT = -2, -1
"""Sort keys: first come the files of a bucket's queues, then the runs, then the units in the order of the log."""
IN_DATABASE: Final = 2
"""The column of rows with the sort key FILES_FIRST that says whether they are of a queue in RocksDB."""


@dataclass(frozen=True)
class VerifyScan(ScanTask):
    """As ``ScanTask``, with ``units_per_file`` ANY_FILE; runs are rows of UNITS, too, with the sort key RUNS_NEXT."""

    compares: bool = True
    """whether queues are compared; else only their order is decided, and there are no rows of UNITS"""
    lite: frozenset[str] = frozenset()
    """the lite topics, whose records rows of units with more columns name"""

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, block: Block, matcher: Matcher | None) -> Iterator[handover.Row]:
        units = BlockCells(scanner, block.units)
        yield from self._runs(scanner, spec, units)
        if not self.compares:
            return

        def cells(pieces: RowPieces, first: int, step: int) -> Iterator[handover.Row]:
            group = units.bucket(pieces.queue, np.zeros_like(pieces.queue), GROUPS)
            for number, (bucket, cell) in enumerate(units.cut(group, pieces)):
                key = self.keys[bucket % len(self.keys)]
                yield handover.Row(handover.UNITS, bucket, key, spec.number, cell, first + step * number)

        yield from cells(units.runs(), RUNS_NEXT, 0)
        _, pieces = units.pieces(ANY_FILE)
        if matcher is not None:
            queue, columns = extended_units(scanner, block, matcher, self.lite)
            more = columns[UNIT_COLUMNS:, np.argsort(queue, kind="stable")]
            pieces = pieces._replace(columns=np.concatenate([pieces.columns, more]))
        # There are fewer cells than records, and a record has more than one byte: so the sort keys ascend.
        yield from cells(pieces, int(block.units.phy_offset[0]), 1)


# ---------------------------------------------------------------------------------------------------------------------- listing
# List the files of ConsumeQueues: rows that go to the tasks of their queues, and what else lies in the folders.

OTHERS_MAX = 10
"""Names listed of what is no queue."""


@dataclass
class ListingResult(handover.TaskResult):
    """The data of a SUMMARY row: what one task listed."""

    tally: Tally = field(default_factory=Tally)
    """files that a broker does not start on, or that mislead it"""
    others: list[str] = field(default_factory=list)
    """the first OTHERS_MAX names that a broker passes over, escaped"""
    passed_over: int = 0
    """how many there are"""
    files: int = 0
    bytes: int = 0
    """sizes of the files"""
    queues: int = 0
    """of a database"""


@dataclass(frozen=True)
class ListQueues:
    """Lists the topics of ``folder`` whose names are in the plan ``plan``, which ``tasks`` tasks share.

    Leaves for each queue a row of UNITS (of BATCHES with ``batch``) with the sort key FILES_FIRST, whose first two columns are
    the logical offset of each file's first byte and its size in bytes; and a SUMMARY row (``ListingResult``). ``keys[b]`` is
    the key of bucket b. ``trimmed``: zeros at a file's end may be missing. ``strict``: the broker takes
    every file and folder for one of its own, however empty (4.9).
    """

    folder: str
    plan: str
    tasks: int
    file_size: int
    keys: tuple[int, ...]
    batch: bool = False
    trimmed: bool = False
    strict: bool = False
    rows: bool = True
    """whether the tasks of the queues need the lists: those of ``consumequeue_ext`` are only looked at"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = handover.read_plan(self.plan)
        for task in handover.numbers(batches):
            yield from handover.batches(self._rows(names[task :: self.tasks]))

    def _rows(self, names: list[str]) -> Iterator[handover.Row]:
        result, others = ListingResult(), list[str]()
        for name in names:
            topic = files.join(self.folder, name)
            is_folder = files.entry_of(topic).kind == files.FOLDER
            if not is_folder:
                others.append(escape(name))
            for entry in files.listing(topic) if is_folder else []:
                number = queue_id(entry.name)
                if entry.kind != files.FOLDER or number is None:
                    # ConsumeQueueStore.loadConsumeQueues (5.3) passes over it.
                    others.append(escape(f"{name}/{entry.name}"))
                    continue
                table = self._files(entry.path, result.tally, others)
                if not self.rows:
                    continue
                result.files += len(table)
                result.bytes += sum(size for _, size in table)
                raw = os.fsencode(name)
                ids = np.array([number], np.int32)
                crc = np.array([zlib.crc32(raw)], np.uint32)
                bucket = int(cells.bucket_of(crc, ids, np.zeros(1, np.int64), QUEUE_BUCKETS if self.batch else GROUPS)[0])
                columns = np.zeros((cells.BATCH_COLUMNS if self.batch else cells.UNIT_COLUMNS, len(table)), np.int64)
                columns[:2] = np.array(table, np.int64).reshape(-1, 2).T
                cell = cells.pack([raw], ids, np.array([len(table)], np.int32), columns)
                kind = handover.BATCHES if self.batch else handover.UNITS
                yield handover.Row(kind, bucket, self.keys[bucket % len(self.keys)], -1, cell, FILES_FIRST)
        result.others, result.passed_over = others[:OTHERS_MAX], len(others)
        yield handover.summary(-1, result.to_json().encode())

    def _files(self, folder: str, tally: Tally, others: list[str]) -> list[tuple[int, int]]:
        """Return (logical offset of the first byte, size in bytes) of each file of a queue.

        What keeps a broker from starting, or misleads it, goes to ``tally`` (``MappedFileQueue.doLoad``, RocketMQ 5.3;
        tests/serving/test_start.py tries each with real brokers), all else to ``others``.
        """
        table = []
        entries = files.listing(folder)
        for number, entry in enumerate(entries):
            path = escape(_last_names(entry.path))
            if entry.kind == files.FOLDER:
                if self.strict:
                    tally.add("queue-file-stray", 1, path, 0, "a folder, which RocketMQ 4.9 takes for a file of another size")
                else:
                    others.append(path.partition("/")[2])
                continue
            if entry.kind == files.FILE and entry.size == 0 and number == len(entries) - 1 and not self.strict:
                continue  # 5.x removes it, whatever its name is
            if entry.kind != files.FILE or not is_number(entry.name):
                tally.add("queue-file-stray", 1, path, 0, "its name is no number")
                continue
            start = first_byte(entry.name)
            if start is None or start % self.file_size:
                tally.add("queue-file-name", 1, path, 0, f"not 20 digits, or no multiple of {self.file_size}")
                continue
            if entry.size > self.file_size or (entry.size < self.file_size and not self.trimmed):
                tally.add("queue-file-size", 1, path, entry.size, f"{entry.size} bytes instead of {self.file_size}")
            table.append((start, entry.size))
        return table


def _last_names(path: str) -> str:
    """Return ``consumequeue/TOPIC/QUEUE/FILE``."""
    last: list[str] = []
    for _ in range(4):
        last.insert(0, files.base(path))
        path = files.parent(path)
    return "/".join(last)
