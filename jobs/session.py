"""The Spark session a job runs in: an active one (Databricks, spark-submit) as it is, else a local one of our own."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mmh3
from pyspark.sql import SparkSession

from storage_format.errors import InputError

SHUFFLE_PARTITIONS_DEFAULT = 200
_RUN_SETTINGS = {
    # A row may be a cell of 1 MiB: batches are counted in rows first.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}


def _find_java() -> None:
    """Spark's launcher looks at JAVA_HOME, then PATH; ``make setup`` leaves its choice in .java-home."""
    if "JAVA_HOME" in os.environ:
        return
    chosen = Path(__file__).resolve().parent.parent / ".java-home"
    with contextlib.suppress(OSError):
        home = chosen.read_text().strip()
        if home:
            os.environ["JAVA_HOME"] = home


def _configuration() -> Path | None:
    """The folder of log4j2.properties and the like: beside the sources, or in the wheel."""
    here = Path(__file__).resolve().parent
    for folder in (here.parent / "conf", here / "_conf"):
        if (folder / "log4j2.properties").exists():
            return folder
    return None


def get_session(master: str) -> tuple[SparkSession, bool]:
    """The session to work in, and whether it is our own to stop."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    _find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("rocketmq-reindex")
    if not submitted:
        builder = builder.master(master or "local[*]")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.python.worker.reuse": "true",
        }.items():
            builder = builder.config(name, value)
        folder = _configuration()
        if folder is not None:
            builder = builder.config(
                "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
            )
    elif master:
        builder = builder.master(master)
    try:
        return builder.getOrCreate(), True
    except Exception as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise InputError(
            f"Spark does not start: {first[0]}: is there a JDK 17 or 21 (JAVA_HOME)? make setup finds one"
        ) from error


@contextlib.contextmanager
def run_settings(spark: SparkSession) -> Iterator[None]:
    """Settings of the session that a run needs, put back afterwards."""
    before = {name: spark.conf.get(name, None) for name in _RUN_SETTINGS}
    try:
        for name, value in _RUN_SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def cores(spark: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # noqa: BLE001  a session without a SparkContext (Spark Connect, serverless) does not say
        return 8


def shuffle_partitions(spark: SparkSession, buckets: int) -> int:
    """Partitions of the shuffle: the user's number, else one for each bucket."""
    asked = int(spark.conf.get("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS_DEFAULT)) or 0)
    return buckets if asked in (0, SHUFFLE_PARTITIONS_DEFAULT) else asked


def bucket_keys(buckets: int, partitions: int) -> tuple[int, ...]:
    """For each bucket a number that ``repartition(partitions, key)`` sends to partition ``bucket % partitions``.

    Spark's hash of an int is murmur3 (32 bits, seed 42), taken modulo the partitions.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < min(buckets, partitions):
        target = mmh3.hash(struct.pack("<i", number), 42) % partitions
        if target < buckets:
            found.setdefault(target, number)
        number += 1
    return tuple(found[bucket % partitions] for bucket in range(buckets))


def stop(spark: Any) -> None:
    with contextlib.suppress(Exception):
        spark.stop()
