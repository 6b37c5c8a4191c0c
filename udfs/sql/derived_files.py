"""The data sources ``rocketmq-consumequeue`` and ``rocketmq-index``: units and items of derived files as rows."""

from __future__ import annotations

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
from rocketmq_reindex.storage_format import errors, findings, layouts, showing
from rocketmq_reindex.storage_format.checks.index import ITEM_FAULTS, check_index
from rocketmq_reindex.storage_format.index.file import IndexView, guess_sizes, open_index
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, IndexHeader, file_size
from rocketmq_reindex.storage_format.queue.consume_queue import BATCH_UNIT, FAULTS, HAS_UNIT, QueueFile, read_queue_file
from rocketmq_reindex.storage_format.queue.extended import is_address
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE
from rocketmq_reindex.udfs.messages import batches as arrow
from rocketmq_reindex.udfs.messages.batches import TIME, times
from rocketmq_reindex.udfs.messages.log_rows import FAIL, ROWS, SKIP, Topics
from rocketmq_reindex.udfs.scan.extended import ExtFiles
from rocketmq_reindex.udfs.sql import base
from rocketmq_reindex.udfs.sql.options import Words, bounds_of, index_folder, queue_folders

# ----------------------------------------------------------------------------------------------------------------- consumequeue
# The data source ``rocketmq-consumequeue``: the units of ConsumeQueue and batch ConsumeQueue files as rows.

GROUP_BYTES: Final = 64 << 20
"""Bytes of the files of one task, at least."""
GROUPS_MAX: Final = 512
"""Tasks, at most."""

_UNIT_FIELDS: Final = (
    pa.field("topic", pa.string()),
    pa.field("queueId", pa.int32()),
    pa.field("consumeQueueOffset", pa.int64()),
    pa.field("commitLogOffset", pa.int64()),
    pa.field("msgSize", pa.int32()),
    pa.field("tagsCode", pa.int64()),
    # of batch ConsumeQueues alone
    pa.field("storeTimestamp", pa.int64()),
    pa.field("storeTime", TIME),
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


@dataclass
class QueueGroup(InputPartition):
    """Files that one task reads."""

    files: list[QueueFileToRead]


class ConsumeQueueSource(base.Source):
    """Makes readers of the units of a store (``ConsumeQueue`` and ``BatchConsumeQueue``, RocketMQ 5.3).

    Its options: docs/reference/sql.md.
    """

    known = ("topic", "excludeTopic", "queueId")
    fields = _UNIT_FIELDS

    @classmethod
    def name(cls) -> str:
        return "rocketmq-consumequeue"

    def located(self, words: Words) -> list[tuple[str, bool]]:
        """Return the folders of topics, each with whether its queues are batch ones."""
        return queue_folders(words.path())

    def reader(self, schema: StructType) -> ConsumeQueueReader:
        """Return a reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has
        one."""
        with base.in_one_line():
            return ConsumeQueueReader(self, schema)


class ConsumeQueueReader(base.SourceReader):
    """Reads groups of files. Raises UsageError for options that it does not take."""

    def __init__(self, source: ConsumeQueueSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self.topics: Topics | None = Topics(self.words.words("topic"), self.words.words("excludeTopic"))
        queue_ids = self.words.words("queueId")
        if not all(re.fullmatch(r"[0-9]{1,10}", word) for word in queue_ids):
            raise self.words.error(f"queueId {self.words.text('queueId')!a}: take numbers, separated by commas")
        self.queues: set[int] | None = {int(word) for word in queue_ids} or None

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
        for unit, size in self._files(self.topics):
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

    def _files(self, topics: Topics) -> Iterator[tuple[QueueFileToRead, int]]:
        """Yield each wanted file, by topic, queue id and offset, with its size in bytes."""
        for tree, batch in self.located:
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
        for unit in partition.files if isinstance(partition, QueueGroup) else []:
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
        self, unit: QueueFileToRead, columns: dict[str, npt.NDArray[Any]], count: int, damage: pa.Array | None
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
    return base.fault_texts(file.fault[rows], tuple(findings.CODES[name] for name in FAULTS))


# ------------------------------------------------------------------------------------------------------------------------ index
# The data source ``rocketmq-index``: the items of IndexFiles as rows.

ITEMS: Final = 1 << 22
"""Items of one task."""
BATCH_ITEMS: Final = 1 << 17
"""Items of one batch."""

_ITEM_FIELDS: Final = (
    pa.field("file", pa.string()),
    pa.field("item", pa.int32()),
    pa.field("keyHash", pa.int32()),
    pa.field("slot", pa.int32()),
    pa.field("commitLogOffset", pa.int64()),
    pa.field("storeTimestamp", pa.int64()),
    pa.field("storeTime", arrow.TIME),
    pa.field("timeDiff", pa.int32()),
    pa.field("prevItem", pa.int32()),
)


_FAULT_TEXTS: Final = tuple(findings.CODES[name].removesuffix(" (at: item)") for name in ITEM_FAULTS)


@dataclass
class ItemsPartition(InputPartition):
    """The items [first, stop) of a file, which has so many slots and room for so many items."""

    name: str
    path: str
    slots: int
    items: int
    first: int
    stop: int


class IndexSource(base.Source):
    """Makes readers of the IndexFiles of a store (``IndexFile``, RocketMQ 5.3). Its options: docs/reference/sql.md."""

    known = ("hashSlots", "indexItems", "startOffset", "endOffset", "startTime", "endTime")
    fields = _ITEM_FIELDS

    @classmethod
    def name(cls) -> str:
        return "rocketmq-index"

    def located(self, words: Words) -> str:
        """Return the folder of IndexFiles."""
        return index_folder(words.path())

    def reader(self, schema: StructType) -> IndexReader:
        """Return a reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has
        one."""
        with base.in_one_line():
            return IndexReader(self, schema)


class IndexReader(base.SourceReader):
    """Reads stretches of items. Raises UsageError for options that it does not take."""

    def __init__(self, source: IndexSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self.bounds = bounds_of(self.words)
        self.slots = self.words.number("hashSlots", 0)
        self.items = self.words.number("indexItems", 0)
        if bool(self.slots) != bool(self.items):
            raise self.words.error("hashSlots and indexItems: give both or none")

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        self.bounds = base.narrow_bounds(self.bounds, filters)

    def plan(self) -> list[InputPartition]:
        """Return the stretches to read."""
        partitions: list[InputPartition] = []
        if self.bounds.empty:
            return partitions
        sizes = (self.slots, self.items) if self.slots else (layouts.DEFAULT_SLOTS, layouts.DEFAULT_ITEMS)
        for entry in files.listing(self.located):
            if entry.kind != files.FILE or not layouts.is_index_file(entry.name) or not entry.size:
                continue
            if entry.size < HEADER_SIZE:
                self._no_index(entry)
                continue
            with files.Reader(entry.path) as reader:
                header = IndexHeader.from_bytes(reader.read(0, HEADER_SIZE))
                if header.begin_time >= self.bounds.end_time or header.index_count == 0:
                    # No item is older than the file's first time: timeDiff is never below 0.
                    continue
                if not self.slots and entry.size != file_size(*sizes):
                    guessed = guess_sizes(reader.whole())
                    if guessed is None:
                        if header.index_count > 1:
                            self._no_index(entry)
                        continue
                    sizes = guessed
                used = header.index_count - 1
                if used < 0 or header.index_count >= sizes[1]:
                    used = open_index(reader.whole(), *sizes).last_written()
            step = ITEMS if self.shown_damage == SKIP else max(used, 1)
            partitions += [
                ItemsPartition(entry.name, entry.path, *sizes, first, min(first + step, used + 1))
                for first in range(1, used + 1, step)
            ]
        return partitions

    def _no_index(self, entry: files.Entry) -> None:
        text = f"{showing.escape(entry.path)}: its slots and items are not known: give hashSlots and indexItems"
        if self.shown_damage == FAIL:
            raise errors.InputError(text)
        self.skipped(showing.escape(entry.path), 1, "its slots and items are not known: give hashSlots and indexItems")

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the items of one stretch, with damage=rows its damage, too. Raises RefusedError with damage=fail."""
        if not isinstance(partition, ItemsPartition):
            return
        with files.Reader(partition.path) as reader:
            view = open_index(reader.whole(), partition.slots, partition.items)
            fault = None
            if self.shown_damage != SKIP:
                check = check_index(view)
                fault = check.item_fault
                if self.shown_damage == FAIL and check.findings:
                    finding = check.findings[0]
                    self.refuse(showing.escape(partition.path), f"{finding.text}: {finding.at}, {finding.count} in all")
            passed, first_passed = 0, 0
            for first in range(partition.first, partition.stop, BATCH_ITEMS):
                stop = min(first + BATCH_ITEMS, partition.stop)
                batch, left_out = self._batch(partition, view, first, stop, fault)
                if len(left_out):
                    first_passed = first_passed or int(left_out[0])
                    passed += len(left_out)
                if batch.num_rows:
                    yield batch
            self.skipped(showing.escape(partition.path), passed, f"item {first_passed}: no item has a negative hash or offset")

    def _batch(
        self, partition: ItemsPartition, view: IndexView, first: int, stop: int, fault: npt.NDArray[np.uint8] | None
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Return a batch of the wanted items from [first, stop), and the numbers (int64) of those that are no items."""
        items = view.read(first, stop - first)
        number = np.arange(first, first + len(items.phy_offset), dtype=np.int64)
        times, bounds = view.times(items.time_diff), self.bounds
        chosen = (items.phy_offset >= bounds.start_offset) & (times >= bounds.start_time)
        chosen &= (items.phy_offset < bounds.end_offset) & (times <= min(bounds.end_time - 1, layouts.INT64_MAX))
        left_out = number[:0]
        if fault is None:
            broken = (items.key_hash < 0) | (items.phy_offset < 0)
            left_out = number[broken]
            chosen &= ~broken
        else:
            chosen |= _faults(fault, number) != 0
        made: dict[str, Any] = {
            "item": number,
            "keyHash": items.key_hash,
            "slot": np.where(items.key_hash < 0, -1, items.key_hash % partition.slots),
            "commitLogOffset": items.phy_offset,
            "storeTimestamp": times,
            "timeDiff": items.time_diff,
            "prevItem": items.prev,
        }
        columns = []
        for field in self.schema:
            if field.name == "file":
                columns.append(pc.fill_null(pa.nulls(int(chosen.sum()), pa.string()), partition.name))
            elif field.name == "storeTime":
                columns.append(arrow.times(times[chosen]))
            elif field.name == arrow.DAMAGE:
                columns.append(base.fault_texts(_faults(fault, number)[chosen], _FAULT_TEXTS) if fault is not None else None)
            else:
                columns.append(pa.array(made[field.name][chosen].astype(field.type.to_pandas_dtype()), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), left_out


def _faults(fault: npt.NDArray[np.uint8], number: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the fault bits (uint8) of the items with these numbers; 0 for one behind those that were checked."""
    faults = np.zeros(len(number), np.uint8)
    known = number < len(fault)
    faults[known] = fault[number[known]]
    return faults
