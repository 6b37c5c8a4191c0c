"""The queues that a broker keeps in RocksDB, as a verify compares them: each as a row of slots, as those of files are.

Where a broker writes both kinds, the ConsumeQueue files of a store are compared with its queues in RocksDB, too.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.queues import is_empty, is_pre_blank, named_fields
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import path_component
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.scan.extended import STORE_TIME
from rocketmq_reindex.udfs.verify.queue_files import QueueFiles, RecordHeads
from rocketmq_reindex.udfs.verify.queue_tasks import FILES_FIRST, GROUPS, ListingResult

# --------------------------------------------------------------------------------------------------------------------- database


Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_QUEUES: Final = 1 << 18
"""queues that are handed on at once: there may be millions"""


@dataclass(frozen=True)
class ListDatabase:
    """Lists the queues of the database in ``folder``, but those of ``passed_over`` topics.

    Leaves rows of UNITS with the sort key FILES_FIRST, as ``ListQueues`` does: a queue has one row, of
    zeros; and a SUMMARY row. ``keys[b]`` is the key of bucket b.
    """

    folder: str
    keys: tuple[int, ...]
    passed_over: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in handover.numbers(batches):
            yield from handover.batches(self._rows())

    def _rows(self) -> Iterator[handover.Row]:
        database = QueueDatabase(self.folder)
        count = 0
        passed_over = {topic.encode("utf-8", "surrogateescape") for topic in self.passed_over}
        tally = Tally()
        try:
            for end in database.impossible():
                text = f"the end names queue offset {end.queue_offset} and phy_offset {end.phy_offset}, which no queue has"
                tally.add("queue-end", 1, _shown(database, end.queue), end.queue_offset, text)
            wanted = (queue for queue in database.queues() if queue.topic not in passed_over)
            while queues := list(itertools.islice(wanted, _QUEUES)):
                count += len(queues)
                yield from self._rows_of(queues)
        finally:
            database.close()
        yield handover.summary(-1, ListingResult(queues=count, tally=tally).to_json().encode())

    def _rows_of(self, queues: list[QueueName]) -> Iterator[handover.Row]:
        """Yield the rows of some queues, a cell for each bucket."""
        crc = np.array([zlib.crc32(queue.topic) for queue in queues], np.uint32)
        ids = np.array([queue.queue_id for queue in queues], np.int32)
        buckets = cells.bucket_of(crc, ids, np.zeros(len(ids), np.int64), GROUPS)
        order = np.argsort(buckets, kind="stable")
        present, starts = np.unique(buckets[order], return_index=True)
        for bucket, own in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            columns, ones = np.zeros((cells.UNIT_COLUMNS, len(own)), np.int64), np.ones(len(own), np.int32)
            cell = cells.pack([queues[k].topic for k in own.tolist()], ids[own], ones, columns)
            yield handover.Row(handover.UNITS, bucket, self.keys[bucket % len(self.keys)], -1, cell, FILES_FIRST)


def _shown(database: QueueDatabase, queue: QueueName) -> str:
    """Return what a store calls a queue in RocksDB, escaped."""
    return f"{files.base(database.folder)}/{escape(queue.topic.decode('utf-8', 'surrogateescape'))}/{queue.queue_id}"


class RowOfDatabaseQueue:
    """A queue in RocksDB as a row of slots up to its end, with what ``QueueFiles`` tells of one in files.

    A broker serves a queue up to the last unit that the database names (``RocksDBConsumeQueueOffsetTable``, 5.3.3). What stands
    behind that are units of records that it has cut off: others replace them.
    """

    def __init__(self, database: QueueDatabase, queue: tuple[bytes, int]) -> None:
        self._database, self._queue = database, QueueName(*queue)
        self.shown = _shown(database, self._queue)
        self._last = database.last(self._queue)
        self.end = database.stop(self._queue)
        """position behind the last slot that has a unit which a broker serves"""
        self._times: tuple[int, Int64s] = 0, np.zeros(0, np.int64)
        """position of the first slot that was read last, and the store times of all of these"""
        first = database.first(self._queue)
        self._first = self.end if first is None else min(first, self.end)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """[position of the first slot, position behind the last one); nothing for a queue that has no unit."""
        return ((self._first, self.end),) if self.end > self._first else ()

    def __len__(self) -> int:
        return int(self._last is not None)

    def path(self, _position: int) -> str:
        """Return what the store calls the queue, escaped."""
        return self.shown

    def lacking(self, _listed: bool) -> str:
        """Return what a queue lacks that has no unit."""
        return "end in RocksDB"

    def read(self, position: int, count: int) -> Int64s:
        """Return ``count`` slots (int64, the fields of a unit in a file by slots): zeros where there is no unit."""
        columns, times = np.zeros((3, count), np.int64), np.zeros(count, np.int64)
        for at, units in self._database.units(self._queue, position, min(position + count, max(self.end, position))):
            for row, name in enumerate(("phy_offset", "size", "tags_code")):
                columns[row, at - position] = units[name]
            times[at - position] = units["store_time"]
        self._times = position, times
        return columns

    def check_extended(self, rows: Int64s, _filters: ConsumerFilters, _topic: str) -> tuple[Mask, Mask]:
        """Return for expected units, at positions that were read last, which have another store time; none lacks bits.

        ``rows``: int64 (1 + COLUMNS + words, n), as the scan has them.
        """
        first, times = self._times
        return times[rows[0] - first] != rows[STORE_TIME], np.zeros(rows.shape[1], np.bool_)

    def check_end(self, tally: Tally, log_start: int) -> None:
        """Add a difference where the end of the queue names no unit, or a later place of the log than that unit does.

        An earlier place is usual: a start that finds queues of the other kind further writes the log's first offset there
        (``CombineConsumeQueueStore``, 5.5.0). A compaction takes the units of records before ``log_start`` away, and leaves the
        end (``ConsumeQueueCompactionFilterFactory``, 5.3.3).
        """
        if self._last is None:
            return
        last = self._last
        if not self.end and last.phy_offset < log_start:
            return
        if self.end != last.queue_offset + 1:
            text = f"the end names queue offset {last.queue_offset}, which has no unit"
        elif self.end and (phy_offset := int(self.read(self.end - 1, 1)[0, 0])) < last.phy_offset:
            text = f"queue offset {last.queue_offset}: the end names phy_offset {last.phy_offset}, the unit there {phy_offset}"
        else:
            return
        tally.add("queue-end", 1, self.shown, last.queue_offset, text)

    def data_from(self, position: int) -> int:
        """Return the position of the first slot from there on that has a unit; that behind the last slot where none has."""
        if position >= self.end:
            return position
        found = self._database.first(self._queue, position)
        return self.end if found is None else min(found, self.end)

    def empty_end(self) -> None:
        """Return None: there are no files that may be empty."""

    def holds_expired(self, log_start: int) -> bool:
        """Return whether any unit is of a record before ``log_start``, where the log begins."""
        for _, units in self._database.units(self._queue, self._first, self.end):
            whole = (units["phy_offset"] >= 0) & (units["size"] >= r.RECORD_MIN)
            if (whole & (units["phy_offset"] + units["size"] <= log_start)).any():
                return True
        return False


# ------------------------------------------------------------------------------------------------------------------- both kinds


_CHUNK: Final = 1 << 16
"""slots that are compared at once"""


@dataclass
class BothKindsResult(handover.TaskResult):
    """What one task found in queues of both kinds."""

    tally: Tally = field(default_factory=Tally)
    compared: int = 0
    """queues in both"""
    files_alone: int = 0
    """queues of which RocksDB has nothing, and that were not compared"""
    rocksdb_alone: int = 0
    """queues that have no file"""


@dataclass(frozen=True)
class CompareBothKinds:
    """Compares the queues of a task's share of the topics; leaves ``BothKindsResult``.

    ``plan`` is the plan of the names of topics below ``folder``, and in ``database``, which ``tasks`` tasks share. Files have
    ``file_size`` bytes. Units of records before the log of ``segments`` do not count. ``lite``, unless it is None, are the lite
    topics: RocksDB has units of their records alone, in their own queues and in the light ones that they name
    (``rocksdbCQSelectiveDoubleWriteEnable``, 5.5.1), so other units are not looked for there.
    """

    folder: str
    database: str
    plan: str
    tasks: int
    file_size: int
    segments: tuple[Segment, ...]
    lite: frozenset[str] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = handover.read_plan(self.plan)
        with contextlib.closing(QueueDatabase(self.database)) as database:
            for task in handover.numbers(batches):
                result = BothKindsResult()
                for name in names[task :: self.tasks]:
                    self._topic(name, database, result)
                yield handover.batch([result])

    def _topic(self, name: str, database: QueueDatabase, result: BothKindsResult) -> None:
        topic = name.encode("utf-8", "surrogateescape")
        in_database = set(database.ids(topic))
        tables = self._tables(name)
        result.rocksdb_alone += len(in_database - tables.keys())
        for number, table in sorted(tables.items()):
            if number not in in_database and self.lite is not None:
                result.files_alone += 1
                continue
            result.compared += 1
            held = QueueFiles(self.folder, layouts.QUEUES, (topic, number), table, self.file_size)
            self._queue(held, RowOfDatabaseQueue(database, (topic, number)), result.tally)

    def _tables(self, name: str) -> dict[int, list[tuple[int, int]]]:
        """Return (logical offset of the first byte, size) of each file of a topic's queues that have any, by queue id."""
        # A name in a database is no folder's: it may lead out of the store.
        folder = files.join(self.folder, name) if path_component(name) else ""
        tables: dict[int, list[tuple[int, int]]] = {}
        for queue in files.listing(folder) if folder and files.entry_of(folder).kind == files.FOLDER else []:
            number = layouts.queue_id(queue.name)
            if number is None or queue.kind != files.FOLDER:
                continue
            starts = [
                (layouts.first_byte(file.name), file.size) for file in files.listing(queue.path) if file.kind == files.FILE
            ]
            if table := [(start, size) for start, size in starts if start is not None]:
                tables[number] = table
        return tables

    def _queue(self, held: QueueFiles, other: RowOfDatabaseQueue, tally: Tally) -> None:
        position, end = 0, max(held.end, other.end)
        # Files are long, and mostly zeros.
        while (position := min(_data_from(held, position, end), _data_from(other, position, end))) < end:
            count = min(_CHUNK, end - position)
            self._stretch(held, other, position, count, tally)
            position += count
        other.check_end(tally, self._log_start)

    def _stretch(self, held: QueueFiles, other: RowOfDatabaseQueue, position: int, count: int, tally: Tally) -> None:
        in_files, in_database = held.read(position, count), other.read(position, count)
        has_files, has_database = self._has_unit(in_files), self._has_unit(in_database)
        if self.lite is not None:
            alone = np.flatnonzero(has_files & ~has_database)
            heads = RecordHeads(self.segments).of_all(in_files[0, alone].tolist())
            has_files[alone] = [record is None or record.topic in self.lite for record in heads]
        for kind, wrong in (
            ("rocksdb-unit-missing", has_files & ~has_database),
            ("rocksdb-unit-extra", has_database & ~has_files),
            ("rocksdb-unit-differs", has_files & has_database & (in_files != in_database).any(axis=0)),
        ):
            if wrong.any():
                at = int(np.argmax(wrong))
                texts = (_text(units[:, at], has[at]) for units, has in ((in_files, has_files), (in_database, has_database)))
                text = f"queue offset {position + at}: {next(texts)} in its files, {next(texts)} in RocksDB"
                tally.add(kind, int(np.count_nonzero(wrong)), other.shown, position + at, text)

    def _has_unit(self, units: Int64s) -> Mask:
        has: Mask = ~(is_empty(units) | is_pre_blank(units)) & (units[0] >= self._log_start)
        return has

    @property
    def _log_start(self) -> int:
        return self.segments[0].start if self.segments else 0


def _data_from(queue: QueueFiles | RowOfDatabaseQueue, position: int, end: int) -> int:
    """Return the position of the first slot from there on that may have a unit; ``end`` where none has."""
    at = queue.data_from(position)
    return at if position <= at < queue.end else end


def _text(unit: Int64s, has: bool) -> str:
    return named_fields(unit.tolist()) if has else "nothing"
