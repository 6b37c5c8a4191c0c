"""``rr.sql``: the data sources and functions of Spark SQL, in one call.

By itself: ``rr.sql`` is this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, filters: bool = False) -> None:
    """Register the data sources ``rocketmq-commitlog``, ``rocketmq-consumequeue`` and ``rocketmq-index``, and all functions.

    Args:
        spark: The session.
        filters: Let the filters of a query narrow what is read (from Spark 4.1 on). Take it only for queries that read each
            DataFrame and view once: Spark, as late as 4.3.0, gives all scans of one in a query the filters of the last.

    Raises:
        InputError: The session is of Spark 3.
    """
    try:
        import pyspark.sql.datasource  # noqa: F401
    except ModuleNotFoundError as error:
        words = f"data sources in Python need Spark 4, and this is Spark {escape(spark.version)}"
        raise InputError(f"rr.sql.register: {words}: a build and a verify run on it") from error
    from rocketmq_reindex.udfs.sql import functions, sources

    sources.register(spark, filters=filters)
    functions.register(spark)
