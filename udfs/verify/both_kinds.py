"""Compare the ConsumeQueue files of a store with its queues in RocksDB, where a broker writes both kinds."""

from __future__ import annotations

import contextlib
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
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.topics import path_component
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.verify.database import DatabaseQueue
from rocketmq_reindex.udfs.verify.queue_files import Int64s, QueueFiles, RecordHeads

_CHUNK: Final = 1 << 16
"""slots that are compared at once"""
Mask = npt.NDArray[np.bool_]


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
            self._queue(held, DatabaseQueue(database, (topic, number)), result.tally)

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

    def _queue(self, held: QueueFiles, other: DatabaseQueue, tally: Tally) -> None:
        position, end = 0, max(held.end, other.end)
        # Files are long, and mostly zeros.
        while (position := min(_data_from(held, position, end), _data_from(other, position, end))) < end:
            count = min(_CHUNK, end - position)
            self._stretch(held, other, position, count, tally)
            position += count
        other.check_end(tally, self._log_start)

    def _stretch(self, held: QueueFiles, other: DatabaseQueue, position: int, count: int, tally: Tally) -> None:
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


def _data_from(queue: QueueFiles | DatabaseQueue, position: int, end: int) -> int:
    """Return the position of the first slot from there on that may have a unit; ``end`` where none has."""
    at = queue.data_from(position)
    return at if position <= at < queue.end else end


def _text(unit: Int64s, has: bool) -> str:
    return named_fields(unit.tolist()) if has else "nothing"
