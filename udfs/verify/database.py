"""The queues that a broker keeps in RocksDB, as a verify compares them: each as a row of slots, as those of files are.

Where a broker writes both kinds, its queues in RocksDB are compared with the ConsumeQueue files, or with the log where they
have none.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterable, Iterator
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
from rocketmq_reindex.udfs.verify.queue_tasks import FILES_FIRST, GROUPS, IN_DATABASE, ListingResult

# --------------------------------------------------------------------------------------------------------------------- database


Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_QUEUES: Final = 1 << 18
"""queues that are handed on at once: there may be millions"""


class QueuesInFiles:
    """Which queues of a store have ConsumeQueue files; ``folder`` is that of the files. The names of topics there are held."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        listed = files.listing(folder) if files.entry_of(folder).kind == files.FOLDER else []
        self._topics = {entry.name for entry in listed if entry.kind == files.FOLDER}

    @property
    def topics(self) -> list[str]:
        """The names of the topics that have a folder, sorted."""
        return sorted(self._topics)

    def tables(self, topic: bytes) -> dict[int, list[tuple[int, int]]]:
        """Return (logical offset of the first byte, size) of each file of a topic's queues that have any, by queue id."""
        name, tables = topic.decode("utf-8", "surrogateescape"), dict[int, list[tuple[int, int]]]()
        # A name in a database is no folder's: it may lead out of the store.
        if name not in self._topics or not path_component(name):
            return tables
        for queue in files.listing(files.join(self._folder, name)):
            number = layouts.queue_id(queue.name)
            if number is None or queue.kind != files.FOLDER:
                continue
            starts = [
                (layouts.first_byte(file.name), file.size) for file in files.listing(queue.path) if file.kind == files.FILE
            ]
            if table := [(start, size) for start, size in starts if start is not None]:
                tables[number] = table
        return tables

    def lacking(self, queues: Iterable[QueueName]) -> Iterator[QueueName]:
        """Yield those of some queues that have no file. Those of a topic follow each other."""
        for topic, of_topic in itertools.groupby(queues, key=lambda queue: queue.topic):
            tables = self.tables(topic)
            yield from (queue for queue in of_topic if queue.queue_id not in tables)


@dataclass(frozen=True)
class ListDatabase:
    """Lists the queues of the database in ``folder``, but those of ``passed_over`` topics.

    Leaves rows of UNITS with the sort key FILES_FIRST, as ``ListQueues`` does: a queue has one row, whose column IN_DATABASE is
    not 0; and a SUMMARY row. ``keys[b]`` is the key of bucket b. ``beside``, unless it is empty, is the folder of ConsumeQueue
    files: queues that have any are not listed.
    """

    folder: str
    keys: tuple[int, ...]
    passed_over: tuple[str, ...] = ()
    beside: str = ""

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
            wanted: Iterator[QueueName] = (queue for queue in database.queues() if queue.topic not in passed_over)
            if self.beside:
                wanted = QueuesInFiles(self.beside).lacking(wanted)
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
            columns[IN_DATABASE] = 1
            cell = cells.pack([queues[k].topic for k in own.tolist()], ids[own], ones, columns)
            yield handover.Row(handover.UNITS, bucket, self.keys[bucket % len(self.keys)], -1, cell, FILES_FIRST)


def _shown(database: QueueDatabase, queue: QueueName) -> str:
    """Return what a store calls a queue in RocksDB, escaped."""
    return f"{files.base(database.folder)}/{escape(queue.topic.decode('utf-8', 'surrogateescape'))}/{queue.queue_id}"


_CHUNK: Final = 1 << 16
"""slots that are compared at once"""
_FAR: Final = 1 << 10
"""slots between two that are asked for, which are not read"""
_KEPT: Final = 1 << 12
"""slots that are kept, and not read again; a light queue rarely has more"""


class RowOfDatabaseQueue:
    """A queue in RocksDB as a row of slots up to its end, with what ``QueueFiles`` tells of one in files.

    A broker serves a queue up to the last unit that the database names (``RocksDBConsumeQueueOffsetTable``, 5.3.3). What stands
    behind that are units of records that it has cut off: others replace them.
    """

    def __init__(self, database: QueueDatabase, queue: tuple[bytes, int]) -> None:
        self._database, self._queue = database, QueueName(*queue)
        self.shown = _shown(database, self._queue)
        self._last = database.last(self._queue)
        self.end = 0 if self._last is None else database.stop_of(self._last)
        """position behind the last slot that has a unit which a broker serves"""
        self._times: tuple[int, Int64s] = 0, np.zeros(0, np.int64)
        """position of the first slot that was read last, and the store times of all of these"""
        self._kept = np.zeros((3, 0), np.int64)
        """these slots, where they are few"""
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
        kept_from = self._times[0]
        if kept_from <= position and position + count <= kept_from + self._kept.shape[1]:
            return self._kept[:, position - kept_from :][:, :count]
        columns, times = np.zeros((3, count), np.int64), np.zeros(count, np.int64)
        for at, units in self._database.units(self._queue, position, min(position + count, max(self.end, position))):
            for row, name in enumerate(("phy_offset", "size", "tags_code")):
                columns[row, at - position] = units[name]
            times[at - position] = units["store_time"]
        self._times, self._kept = (position, times), columns[:, : count if count <= _KEPT else 0]
        return columns

    def has(self, positions: Int64s) -> Mask:
        """Return at which of some positions, which rise, there is a unit: bool (n,)."""
        there = np.zeros(len(positions), np.bool_)
        # What lies far apart is not read as one.
        cuts = np.flatnonzero((np.diff(positions) > _FAR) | (np.diff(positions // _CHUNK) != 0)) + 1
        for rows in np.split(np.arange(len(positions)), cuts) if len(positions) else ():
            low, high = int(positions[rows[0]]), int(positions[rows[-1]])
            there[rows] = ~is_empty(self.read(low, high + 1 - low)[:, positions[rows] - low])
        return there

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
        if position <= self._first:
            return self._first
        found = self._database.first(self._queue, position)
        return self.end if found is None else min(found, self.end)

    def empty_end(self) -> None:
        """Return None: there are no files that may be empty."""

    def holds_expired(self, log_start: int) -> bool:
        """Return whether any unit is of a record before ``log_start``, where the log begins."""
        position = self._first
        while position < self.end:
            count = min(_CHUNK, self.end - position)
            phy_offset, size, _ = self.read(position, count)
            if ((phy_offset >= 0) & (size >= r.RECORD_MIN) & (phy_offset + size <= log_start)).any():
                return True
            position = self.data_from(position + count)
        return False


# ------------------------------------------------------------------------------------------------------------------- both kinds


@dataclass
class BothKindsResult(handover.TaskResult):
    """What one task found in queues of both kinds."""

    tally: Tally = field(default_factory=Tally)
    compared: int = 0
    """queues in both"""
    files_alone: int = 0
    """queues of which RocksDB has nothing, and that were not compared"""
    lacks_until: int = -1
    """the last phy_offset of a unit that RocksDB lacks; -1 where it lacks none"""
    has_from: int = layouts.INT64_MAX
    """the first phy_offset of a unit that both have"""


@dataclass(frozen=True)
class CompareBothKinds:
    """Compares the queues in files of a task's share of the topics with RocksDB; leaves ``BothKindsResult``.

    ``plan`` is the plan of the names of topics below ``folder``, which ``tasks`` tasks share. Files have ``file_size`` bytes.
    Units of records before the log of ``segments`` do not count. ``lite`` is as in ``BesideFiles``: other units are not looked
    for in RocksDB.
    """

    folder: str
    database: str
    plan: str
    tasks: int
    file_size: int
    segments: tuple[Segment, ...]
    lite: frozenset[str] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names, in_files = handover.read_plan(self.plan), QueuesInFiles(self.folder)
        with contextlib.closing(QueueDatabase(self.database)) as database:
            for task in handover.numbers(batches):
                result = BothKindsResult()
                for name in names[task :: self.tasks]:
                    topic = name.encode("utf-8", "surrogateescape")
                    self._topic(topic, in_files.tables(topic), database, result)
                yield handover.batch([result])

    def _topic(
        self, topic: bytes, tables: dict[int, list[tuple[int, int]]], database: QueueDatabase, result: BothKindsResult
    ) -> None:
        in_database = set(database.ids(topic))
        for number, table in sorted(tables.items()):
            if number not in in_database and self.lite is not None:
                result.files_alone += 1
                continue
            result.compared += 1
            held = QueueFiles(self.folder, layouts.QUEUES, (topic, number), table, self.file_size)
            self._queue(held, RowOfDatabaseQueue(database, (topic, number)), result)

    def _queue(self, held: QueueFiles, other: RowOfDatabaseQueue, result: BothKindsResult) -> None:
        position, end = 0, max(held.end, other.end)
        # Files are long, and mostly zeros.
        while (position := min(_data_from(held, position, end), _data_from(other, position, end))) < end:
            count = min(_CHUNK, end - position)
            self._stretch(held, other, position, count, result)
            position += count
        other.check_end(result.tally, self._log_start)

    def _stretch(
        self, held: QueueFiles, other: RowOfDatabaseQueue, position: int, count: int, result: BothKindsResult
    ) -> None:  # fmt: skip
        in_files, in_database = held.read(position, count), other.read(position, count)
        has_files, has_database = self._has_unit(in_files), self._has_unit(in_database)
        if self.lite is not None:
            alone = np.flatnonzero(has_files & ~has_database)
            heads = RecordHeads(self.segments).of_all(in_files[0, alone].tolist())
            has_files[alone] = [record is None or record.topic in self.lite for record in heads]
        result.lacks_until = int(in_files[0].max(where=has_files & ~has_database, initial=result.lacks_until))
        result.has_from = int(in_files[0].min(where=has_files & has_database, initial=result.has_from))
        for kind, wrong in (
            ("rocksdb-unit-missing", has_files & ~has_database),
            ("rocksdb-unit-extra", has_database & ~has_files),
            ("rocksdb-unit-differs", has_files & has_database & (in_files != in_database).any(axis=0)),
        ):
            if wrong.any():
                at = int(np.argmax(wrong))
                texts = (_text(units[:, at], has[at]) for units, has in ((in_files, has_files), (in_database, has_database)))
                text = f"queue offset {position + at}: {next(texts)} in its files, {next(texts)} in RocksDB"
                result.tally.add(kind, int(np.count_nonzero(wrong)), other.shown, position + at, text)

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
