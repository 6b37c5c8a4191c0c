"""The JVM that pyspark keeps for the whole life of a process, and what Spark does in it with the few rows of a test."""

from __future__ import annotations

from pyspark import SparkContext

from rocketmq_reindex.jobs.spark.session import FEW_ROWS

SMALL_TABLES = FEW_ROWS | {
    # Of Delta's own shuffles, and of a table's state: Spark's 200 and Delta's 50 cost small tables minutes.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    # VACUUM lists folders by so many tasks: 10,000 by default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Each commit would be read once more for the sum of its table's state.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""for a session whose Delta tables have a few rows: to compile what runs over them takes most of the time"""


def end_jvm() -> None:
    """End it once its session is stopped: later sessions would have its settings, class path, environment and user."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    assert SparkContext._active_spark_context is None, "a session is still there"
    gateway.shutdown()
    # It ends with its standard input.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=900)
    SparkContext._gateway = SparkContext._jvm = None
