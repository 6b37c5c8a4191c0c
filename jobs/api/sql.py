"""``rr.sql``: the data sources and functions of Spark SQL, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, filters: bool = False) -> None:
    """Register the data sources ``rocketmq-commitlog``, ``rocketmq-consumequeue`` and ``rocketmq-index``, and all functions.

    Args:
        spark: The session.
        filters: Let the filters of a query narrow what is read (Spark 4.1). Take it only for queries that read each DataFrame
            and view once: in Spark 4.1 all scans of one in a query get the filters of the last.
    """
    from rocketmq_reindex.udfs.sql import functions, sources

    sources.register(spark, filters=filters)
    functions.register(spark)
