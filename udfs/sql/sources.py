"""Spark SQL's data sources over a store: ``register(spark)``, then ``spark.read.format("rocketmq-commitlog").load(path)``.

Users import it under this name. The records of a log become rows by the scan that a build uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import versions
from rocketmq_reindex.storage_format.queue.extended import NO_FILTERS, ConsumerFilters
from rocketmq_reindex.storage_format.scan import ranges
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.messages.batches import BIT_MAP, fields
from rocketmq_reindex.udfs.scan.extended import FILTERS, stored_filters
from rocketmq_reindex.udfs.sql.base import SourceReader, TableSource, in_one_line, log, narrow_bounds, narrow_topics
from rocketmq_reindex.udfs.sql.index_source import IndexSource
from rocketmq_reindex.udfs.sql.options import Words, bounds_of, commitlog_folder
from rocketmq_reindex.udfs.sql.queue_source import ConsumeQueueSource

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
            self.refuse(f"segment {first.segment}", log_rows.hole_text(first))
        if self.shown_damage == log_rows.ROWS:
            yield log_rows.damage_rows(self.schema, holes)
        else:
            self.skipped(f"segment {first.segment}", len(holes), log_rows.hole_text(first))


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
