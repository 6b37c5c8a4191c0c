"""The JVM that pyspark keeps for the whole life of a process."""

from __future__ import annotations

from pyspark import SparkContext


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
