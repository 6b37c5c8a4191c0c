"""Spark SQL's data sources over a store: ``register(spark)``, then ``spark.read.format("rocketmq-commitlog").load(path)``.

By itself: users import it under this name, and it imports all three sources.
"""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from rocketmq_reindex.udfs.sql.commitlog import CommitlogSource
from rocketmq_reindex.udfs.sql.derived_files import ConsumeQueueSource, IndexSource

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
