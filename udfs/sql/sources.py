"""Spark SQL's data sources over a store: ``register(spark)``, then ``spark.read.format("rocketmq-commitlog").load(path)``;
and the one of IndexFiles, ``rocketmq-index``, whose rows are their items.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing, versions
from rocketmq_reindex.storage_format.checks.index import ITEM_FAULTS, check_index
from rocketmq_reindex.storage_format.index.file import IndexView, guess_sizes, open_index
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, IndexHeader, file_size
from rocketmq_reindex.storage_format.queue.extended import NO_FILTERS, ConsumerFilters
from rocketmq_reindex.storage_format.scan import range_notes, ranges
from rocketmq_reindex.udfs.messages import batches as arrow, log_rows
from rocketmq_reindex.udfs.messages.batches import BIT_MAP, fields
from rocketmq_reindex.udfs.messages.log_rows import FAIL, SKIP
from rocketmq_reindex.udfs.scan.extended import FILTERS, stored_filters
from rocketmq_reindex.udfs.sql import base
from rocketmq_reindex.udfs.sql.base import SourceReader, TableSource, in_one_line, log, narrow_bounds, narrow_topics
from rocketmq_reindex.udfs.sql.options import Words, bounds_of, commitlog_folder, index_folder
from rocketmq_reindex.udfs.sql.queue_source import ConsumeQueueSource

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


_FAULT_TEXTS: Final = tuple(errors.CODES[name].removesuffix(" (at: item)") for name in ITEM_FAULTS)


@dataclass
class ItemsPartition(InputPartition):
    """The items [first, stop) of a file, which has so many slots and room for so many items."""

    name: str
    path: str
    slots: int
    items: int
    first: int
    stop: int


class IndexSource(base.TableSource):
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


# -------------------------------------------------------------------------------------------------------------------- commitlog


class CommitlogSource(TableSource):
    """Makes readers of the log of a store. Its options: docs/reference/sql.md.

    Columns have the names of ``DispatchRequest`` and ``MessageExt`` (RocketMQ 5.3) where those have them.
    """

    known = (
        "commitlog", "topic", "excludeTopic", "startOffset", "endOffset", "startTime", "endTime", "body", "unpack",
        "maxBody", "crc", "brokerVersion", "delayLevels", "rangeSize", "segmentSize",
    )  # fmt: skip

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def columns(self, words: Words) -> pa.Schema:
        """Return all columns that these options give."""
        return fields(body=words.flag("body") or words.flag("unpack"), damage=words.text("damage") == log_rows.ROWS, bits=True)

    def located(self, words: Words) -> tuple[str, ...]:
        """Return the folders of segments."""
        return words.words("commitlog") or (commitlog_folder(words.path()),)

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return a reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has
        one."""
        with in_one_line():
            return CommitlogReader(self, schema)


@dataclass
class LogPartition(InputPartition):
    """A range of the log, which one task reads."""

    log_range: log_rows.LogRange


class CommitlogReader(SourceReader):
    """Reads ranges of the log. Raises UsageError for options that it does not take."""

    def __init__(self, source: CommitlogSource, schema: StructType) -> None:
        super().__init__(source, schema)
        words = self.words
        self.log: log_rows.LogRowReader | None = log_rows.LogRowReader(
            self.schema,
            self.located,
            bounds_of(words),
            log_rows.Topics(words.words("topic"), words.words("excludeTopic")),
            words.number("rangeSize", log_rows.RANGE_SIZE, 1),
            words.number("segmentSize", 0),
            words.crc(),
            words.number("maxBody", log_rows.UNPACKED_MAX, 1) if words.flag("unpack") else 0,
            words.chosen("brokerVersion", versions.VERSIONS),
            words.delays(),
            self._registrations(),
        )

    def _registrations(self) -> ConsumerFilters:
        """Return the registrations of the store, if bit maps are asked for. Raises InputError for such as are none."""
        if BIT_MAP not in self.schema.names or not self.words.text("path"):
            return NO_FILTERS
        filters = stored_filters(files.parent(self.located[0]), otherwise="leave out bitMap (option columns)")
        for note in filters.notes if filters is not None else ():
            log.warning("%s: %s", FILTERS, note)
        return filters or NO_FILTERS

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        if self.log is not None:
            topics = narrow_topics(self.log.topics, filters)
            bounds = narrow_bounds(self.log.bounds, filters)
            self.log = None if topics is None else dataclasses.replace(self.log, bounds=bounds, topics=topics)

    def plan(self) -> list[InputPartition]:
        """Return the ranges to read. Raises InputError for a folder that is no commitlog."""
        return [] if self.log is None else [LogPartition(log_range) for log_range in self.log.plan()]

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, with damage=rows its damage, too. Raises RefusedError with damage=fail."""
        if isinstance(partition, LogPartition) and self.log is not None:
            holes: list[ranges.Hole] = []
            yield from self.log.rows(partition.log_range, holes)
            yield from self._damage(holes)

    def _damage(self, holes: list[ranges.Hole]) -> Iterator[pa.RecordBatch]:
        """Skip the damage of one range, refuse it, or make rows of it, as the option ``damage`` says."""
        if not holes:
            return
        lost = log_rows.lost(holes)
        first = (lost or holes)[0]
        if self.shown_damage == log_rows.FAIL and lost:
            self.refuse(f"segment {first.segment}", first.text)
        if self.shown_damage == log_rows.ROWS:
            yield arrow.damage_rows(self.schema, holes)
        else:
            more = f"; {left_out}" if (left_out := range_notes.left_out(holes)) else ""
            self.skipped(f"segment {first.segment}", len(holes), f"{first.text}{more}")


# --------------------------------------------------------------------------------------------------------------------- register


__all__ = ["PUSHDOWN", "CommitlogSource", "ConsumeQueueSource", "IndexSource", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class PushingCommitlogSource(CommitlogSource):
    """The same, for sessions that push filters down."""

    pushing = True


class PushingConsumeQueueSource(ConsumeQueueSource):
    """The same, for sessions that push filters down."""

    pushing = True


class PushingIndexSource(IndexSource):
    """The same, for sessions that push filters down."""

    pushing = True


def register(spark: SparkSession, *, filters: bool = False) -> None:
    """Register ``rocketmq-commitlog``, ``rocketmq-consumequeue`` and ``rocketmq-index`` with a session.

    With ``filters`` those of a query narrow what is read (from Spark 4.1 on): this sets PUSHDOWN to true, unless the session
    has set it to false. Take it only for queries that read each DataFrame and view once: Spark, as late as 4.3.0, gives all
    scans of one in a query the filters of the last.
    """
    if filters and hasattr(DataSourceReader, "pushFilters"):
        if spark.conf.get(PUSHDOWN, None) is None:
            spark.conf.set(PUSHDOWN, "true")
        filters = spark.conf.get(PUSHDOWN) == "true"
    else:
        filters = False
    plain = (CommitlogSource, ConsumeQueueSource, IndexSource)
    pushing = (PushingCommitlogSource, PushingConsumeQueueSource, PushingIndexSource)
    for source in pushing if filters else plain:
        spark.dataSource.register(source)
