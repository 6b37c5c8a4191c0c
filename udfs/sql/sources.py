"""Spark SQL's data sources over a store's files: ``register(spark)``, then ``spark.read.format("rocketmq-commitlog")``."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from rocketmq_reindex.udfs.sql.commitlog import CommitlogSource
from rocketmq_reindex.udfs.sql.consumequeue import ConsumeQueueSource
from rocketmq_reindex.udfs.sql.index import IndexSource

__all__ = ["PUSHDOWN", "CommitlogSource", "ConsumeQueueSource", "IndexSource", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class PushingCommitlogSource(CommitlogSource):
    """The same for sessions that hand filters over."""

    pushing = True


class PushingConsumeQueueSource(ConsumeQueueSource):
    """The same for sessions that hand filters over."""

    pushing = True


class PushingIndexSource(IndexSource):
    """The same for sessions that hand filters over."""

    pushing = True


def register(spark: SparkSession) -> None:
    """Make ``rocketmq-commitlog``, ``rocketmq-consumequeue`` and ``rocketmq-index`` known to a session.

    In Spark 4.1 the filters of a query narrow what is read: PUSHDOWN is set to true, unless the session sets it itself.
    Where that is false when this is called, only options narrow.
    """
    said = spark.conf.get(PUSHDOWN, None)
    if said is None and hasattr(DataSourceReader, "pushFilters"):
        spark.conf.set(PUSHDOWN, "true")
        said = "true"
    plain = (CommitlogSource, ConsumeQueueSource, IndexSource)
    pushing = (PushingCommitlogSource, PushingConsumeQueueSource, PushingIndexSource)
    for source in pushing if said == "true" else plain:
        spark.dataSource.register(source)
