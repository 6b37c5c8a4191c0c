"""The data source ``rocketmq-consumequeue``: the units of ConsumeQueues as rows, from files of both kinds and from RocksDB."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.consume_queue import BATCH_UNIT, FAULTS, HAS_UNIT, UNIT, QueueFile, read_queue_file
from rocketmq_reindex.storage_format.queue.extended import is_address
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE
from rocketmq_reindex.udfs.messages import batches as arrow
from rocketmq_reindex.udfs.messages.batches import TIME, times
from rocketmq_reindex.udfs.messages.log_rows import FAIL, ROWS, Topics
from rocketmq_reindex.udfs.queue_database import ROCKSDB_UNIT, QueueDatabase, QueueName
from rocketmq_reindex.udfs.scan.extended import ExtFiles
from rocketmq_reindex.udfs.sql import base
from rocketmq_reindex.udfs.sql.options import NamedQueueFolder, Words, holds_files, queue_folders

RANGE_UNITS: Final = 1 << 21
"""Units of a queue in RocksDB that are read at once."""
GROUP_BYTES: Final = 64 << 20
"""Bytes of the files of one task, at least."""
GROUPS_MAX: Final = 512
"""Tasks, at most."""
BOTH, FILE, ROCKSDB = "both", "file", "rocksdb"
"""Which kind of ConsumeQueues is read: of a queue in both the one that goes further, or one kind alone."""

_UNIT_FIELDS: Final = (
    pa.field("topic", pa.string()),
    pa.field("queueId", pa.int32()),
    pa.field("consumeQueueOffset", pa.int64()),
    pa.field("commitLogOffset", pa.int64()),
    pa.field("msgSize", pa.int32()),
    pa.field("tagsCode", pa.int64()),
    # of batch ConsumeQueues and of those in RocksDB alone
    pa.field("storeTimestamp", pa.int64()),
    pa.field("storeTime", TIME),
    # of batch ConsumeQueues alone
    pa.field("batchSize", pa.int32()),
)


class QueueFileToRead(NamedTuple):
    """One file of one queue."""

    topic: str
    queue_id: int
    path: str
    start: int
    """logical offset of its first byte"""
    batch: bool
    """whether it is a batch ConsumeQueue's"""


class DatabaseRange(NamedTuple):
    """The units [first, stop) of one queue in RocksDB, by queue offset; ``folder`` is that of the database."""

    topic: str
    queue_id: int
    raw: bytes
    """the topic as it stands in the keys"""
    folder: str
    first: int
    stop: int


def _goes_further(database: QueueDatabase, held: list[tuple[QueueFileToRead, int]]) -> bool:
    """Return whether a queue, of which ``held`` are the files with their sizes, has a unit in RocksDB behind all of these."""
    first = held[0][0]
    stop = 0 if first.batch else database.stop(QueueName(first.topic.encode(), first.queue_id))
    if not stop:
        return False
    at = UNIT.itemsize * (stop - 1)
    for file, size in held:
        if file.start + size <= at:
            continue
        low, count = max(0, at - file.start), 1
        with files.Reader(file.path) as reader:
            while slots := min(count, (size - low) // UNIT.itemsize):
                if (np.frombuffer(reader.read(low, slots * UNIT.itemsize), UNIT)["size"] > 0).any():
                    return False
                # Mostly the two end alike: then the first slot is the answer.
                low, count = low + slots * UNIT.itemsize, 1 << 16
    return True


@dataclass
class QueueGroup(InputPartition):
    """Files, and parts of queues in RocksDB, that one task reads."""

    files: list[QueueFileToRead | DatabaseRange]


class ConsumeQueueSource(base.TableSource):
    """Makes readers of the units of a store (``ConsumeQueue`` and ``BatchConsumeQueue``, RocketMQ 5.3).

    Its options: docs/reference/sql.md.
    """

    known = ("topic", "excludeTopic", "queueId", "consumequeueType")
    fields = _UNIT_FIELDS

    @classmethod
    def name(cls) -> str:
        return "rocketmq-consumequeue"

    def located(self, words: Words) -> list[NamedQueueFolder]:
        """Return the folders of queues."""
        return queue_folders(words.path())

    def reader(self, schema: StructType) -> ConsumeQueueReader:
        """Return a reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has
        one."""
        with base.in_one_line():
            return ConsumeQueueReader(self, schema)


class ConsumeQueueReader(base.SourceReader):
    """Reads groups of files. Raises UsageError for options that it does not take, InputError for a kind that is not there."""

    def __init__(self, source: ConsumeQueueSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self.topics: Topics | None = Topics(self.words.words("topic"), self.words.words("excludeTopic"))
        queue_ids = self.words.words("queueId")
        if not all(re.fullmatch(r"[0-9]{1,10}", word) for word in queue_ids):
            raise self.words.error(f"queueId {self.words.text('queueId')!a}: take numbers, separated by commas")
        self.queues: set[int] | None = {int(word) for word in queue_ids} or None
        self.kind = self.words.chosen("consumequeueType", (BOTH, FILE, ROCKSDB))
        has_rocksdb = any(tree.in_rocksdb for tree in self.located)
        if self.kind == ROCKSDB and not has_rocksdb:
            raise self._lacking("no ConsumeQueues in RocksDB")
        if self.kind == FILE and has_rocksdb and not any(map(holds_files, self.located)):
            raise self._lacking("ConsumeQueues in RocksDB alone")

    def _lacking(self, what: str) -> InputError:
        return InputError(f"{showing.escape(self.words.path())}: has {what}: leave out consumequeueType {self.kind}")

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        self.topics = base.narrow_topics(self.topics, filters) if self.topics is not None else None
        pushed = base.pushed_numbers("queueId", filters)
        if pushed is not None:
            self.queues = pushed if self.queues is None else self.queues & pushed

    def plan(self) -> list[InputPartition]:
        """Return the groups to read."""
        if self.topics is None:
            return []
        units, sizes = [], []
        for unit, size in self._to_read(self.topics):
            units.append(unit)
            sizes.append(size)
        group = max(GROUP_BYTES, sum(sizes) // GROUPS_MAX)
        groups: list[QueueGroup] = []
        room = 0
        for unit, size in zip(units, sizes, strict=True):
            if not groups or room < size:
                groups.append(QueueGroup([]))
                room = group
            groups[-1].files.append(unit)
            room -= size
        return [*groups]

    def _to_read(self, topics: Topics) -> Iterator[tuple[QueueFileToRead | DatabaseRange, int]]:
        """Yield what is wanted, by topic, queue id and offset, with its size in bytes.

        Of a queue that is in files and in RocksDB the files are read, or RocksDB where that goes further, unless one kind is
        asked for.
        """
        in_files = set[tuple[str, int]]()
        trees = [tree for tree in self.located if tree.in_rocksdb] if self.kind != FILE else []
        with contextlib.ExitStack() as opened:
            databases = [opened.enter_context(contextlib.closing(QueueDatabase(tree.path))) for tree in trees]
            in_order = self._files(topics) if self.kind != ROCKSDB else ()
            for queue, found in itertools.groupby(in_order, key=lambda file: (file[0].topic, file[0].queue_id)):
                held = list(found)
                if not any(_goes_further(database, held) for database in databases):
                    in_files.add(queue)
                    yield from held
            for database in databases:
                yield from self._ranges(database, topics, in_files)

    def _ranges(
        self, database: QueueDatabase, topics: Topics, in_files: set[tuple[str, int]]
    ) -> Iterator[tuple[DatabaseRange, int]]:
        for raw in sorted(database.topics()):
            topic = raw.decode("utf-8", "replace")
            for number in sorted(database.ids(raw)) if topics.wants(topic) else ():
                if (topic, number) in in_files or (self.queues is not None and number not in self.queues):
                    continue
                queue = QueueName(raw, number)
                low, stop = database.first(queue), database.stop(queue)
                while low is not None and low < stop:
                    high = min(low + RANGE_UNITS, stop)
                    size = ROCKSDB_UNIT.itemsize * (high - low)
                    yield DatabaseRange(topic, number, raw, database.folder, low, high), size
                    # The next unit may be far behind.
                    low = database.first(queue, high)

    def _files(self, topics: Topics) -> Iterator[tuple[QueueFileToRead, int]]:
        """Yield each wanted file, by topic, queue id and offset, with its size in bytes."""
        for tree, batch, _ in self.located:
            for topic in files.listing(tree):
                # The name of a folder may be no UTF-8.
                name = topic.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                if topic.kind != files.FOLDER or not topics.wants(name):
                    continue
                queues = [(number, e.path) for e in files.listing(topic.path) if e.kind == files.FOLDER
                          if (number := layouts.queue_id(e.name)) is not None]  # fmt: skip
                for number, path in sorted(queues):
                    if self.queues is not None and number not in self.queues:
                        continue
                    for file in files.listing(path):
                        start = layouts.first_byte(file.name)
                        if file.kind == files.FILE and start is not None and file.size:
                            yield QueueFileToRead(name, number, file.path, start, batch), file.size

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the units of one group, with damage=rows its damage, too. Raises RefusedError with damage=fail."""
        databases: dict[str, QueueDatabase] = {}
        with contextlib.ExitStack() as opened:
            for unit in partition.files if isinstance(partition, QueueGroup) else []:
                if isinstance(unit, QueueFileToRead):
                    yield from self._file_rows(unit)
                    continue
                if unit.folder not in databases:
                    databases[unit.folder] = opened.enter_context(contextlib.closing(QueueDatabase(unit.folder)))
                yield from self._database_rows(unit, databases[unit.folder])

    def _database_rows(self, wanted: DatabaseRange, database: QueueDatabase) -> Iterator[pa.RecordBatch]:
        place = f"{database.shown}: {showing.escape(wanted.topic)}/{wanted.queue_id}"
        for at, units in database.units(QueueName(wanted.raw, wanted.queue_id), wanted.first, wanted.stop):
            bad = (units["phy_offset"] < 0) | (units["size"] <= 0)
            damage: pa.Array | None = None
            if bad.any():
                first = f"queue offset {int(at[np.argmax(bad)])}: no unit"
                if self.shown_damage == FAIL:
                    self.refuse(place, f"{first}, {int(bad.sum())} in all")
                if self.shown_damage == ROWS:
                    damage = pa.array(["no unit" if each else None for each in bad.tolist()], pa.string())
                else:
                    self.skipped(place, int(bad.sum()), first)
                    at, units = at[~bad], units[~bad]
            yield self._batch(wanted, {
                "consumeQueueOffset": at,
                "commitLogOffset": units["phy_offset"],
                "msgSize": units["size"],
                "tagsCode": units["tags_code"],
                "storeTimestamp": units["store_time"],
            }, len(at), damage)  # fmt: skip

    def _file_rows(self, unit: QueueFileToRead) -> Iterator[pa.RecordBatch]:
        with files.Reader(unit.path) as reader:
            data = reader.whole()
            batch = self._batch_units(unit, data) if unit.batch else self._units(unit, data)
        if batch.num_rows:
            yield batch

    def _units(self, unit: QueueFileToRead, data: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        file = read_queue_file(data, unit.start)
        bad = np.flatnonzero((file.kind != HAS_UNIT) & (file.fault != 0))
        if self.shown_damage == FAIL and file.findings:
            finding = file.findings[0]
            self.refuse(showing.escape(unit.path), f"{finding.text} (at {finding.at}, {finding.count} in all)")
        if self.shown_damage == ROWS:
            rows = np.flatnonzero((file.kind == HAS_UNIT) | (file.fault != 0))
        else:
            rows = np.flatnonzero(file.kind == HAS_UNIT)
            if len(bad):
                self.skipped(showing.escape(unit.path), len(bad), f"position {file.position + int(bad[0])}")
        tags_code = file.tags_code[rows]
        if is_address(tags_code).any():
            tags_code = ExtFiles.beside(unit.path).tags_codes(tags_code)
        return self._batch(unit, {
            "consumeQueueOffset": file.position + rows,
            "commitLogOffset": file.phy_offset[rows],
            "msgSize": file.size[rows],
            "tagsCode": tags_code,
        }, len(rows), _damage(file, rows))  # fmt: skip

    def _batch_units(self, unit: QueueFileToRead, data: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        table = np.frombuffer(data[: len(data) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE], BATCH_UNIT)
        # As BatchConsumeQueue.recover (5.3): a unit exists if its offset and size are valid.
        rows = table[(table["phy_offset"] >= 0) & (table["size"] > 0)]
        return self._batch(unit, {
            "consumeQueueOffset": rows["base"],
            "commitLogOffset": rows["phy_offset"],
            "msgSize": rows["size"],
            "tagsCode": rows["tags_code"],
            "storeTimestamp": rows["store_time"],
            "batchSize": rows["count"],
        }, len(rows), None)  # fmt: skip

    def _batch(
        self, unit: QueueFileToRead | DatabaseRange, columns: dict[str, npt.NDArray[Any]], count: int, damage: pa.Array | None
    ) -> pa.RecordBatch:
        made = []
        for field in self.schema:
            if field.name == "topic":
                made.append(pc.fill_null(pa.nulls(count, pa.string()), unit.topic))
            elif field.name == "queueId":
                made.append(pa.array(np.full(count, unit.queue_id, np.int32)))
            elif field.name == arrow.DAMAGE and damage is not None:
                made.append(damage)
            elif field.name == "storeTime" and "storeTimestamp" in columns:
                made.append(times(columns["storeTimestamp"].astype(np.int64)))
            elif field.name in columns:
                made.append(pa.array(columns[field.name].astype(field.type.to_pandas_dtype()), field.type))
            else:
                made.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _damage(file: QueueFile, rows: npt.NDArray[np.intp]) -> pa.Array:
    """Return what is wrong with each of the slots ``rows`` (string), null for a sound one."""
    return base.fault_texts(file.fault[rows], tuple(errors.CODES[name] for name in FAULTS))
