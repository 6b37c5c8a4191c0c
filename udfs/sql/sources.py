"""Spark SQL's data sources over a store: ``register(spark)``, then ``spark.read.format("rocketmq-commitlog").load(path)``."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from rocketmq_reindex.udfs.sql.commitlog import CommitlogSource
from rocketmq_reindex.udfs.sql.consumequeue import ConsumeQueueSource
from rocketmq_reindex.udfs.sql.index import IndexSource

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


def register(spark: SparkSession) -> None:
    """Register ``rocketmq-commitlog``, ``rocketmq-consumequeue`` and ``rocketmq-index`` with a session.

    In Spark 4.1 the filters of a query narrow what is read: this sets PUSHDOWN to true, unless the session has set it. Where it
    is false at this moment, only options narrow what is read.
    """
    enabled = spark.conf.get(PUSHDOWN, None)
    if enabled is None and hasattr(DataSourceReader, "pushFilters"):
        spark.conf.set(PUSHDOWN, "true")
        enabled = "true"
    plain = (CommitlogSource, ConsumeQueueSource, IndexSource)
    pushing = (PushingCommitlogSource, PushingConsumeQueueSource, PushingIndexSource)
    for source in pushing if enabled == "true" else plain:
        spark.dataSource.register(source)
