"""The Spark session a job runs in: an active one (Databricks, spark-submit) as it is, else a local one of our own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mmh3
from pyspark import SparkContext
from pyspark.sql import SparkSession

from storage_format.errors import InputError

SHUFFLE_PARTITIONS_DEFAULT = 200
TASKS_PER_CORE = 4
"""of a stage: enough that cores end together, few since each costs 0.2 s by itself"""
JAVA_VERSIONS = ("17", "21")
_PACKAGE = Path(__file__).resolve().parent
_RUN_SETTINGS = {
    # A row may be a cell of 1 MiB: batches are counted in rows first.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}


def _java_major(home: str) -> str:
    """The major version that a JDK's ``release`` file names, or nothing."""
    with contextlib.suppress(OSError):
        found = re.search(r'^JAVA_VERSION="?(\d+)', (Path(home) / "release").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def _choose_java() -> None:
    """Spark's launcher takes JAVA_HOME: ``make setup`` leaves its choice in .java-home, used unless the shell's one fits."""
    if _java_major(os.environ.get("JAVA_HOME", "")) in JAVA_VERSIONS:
        return
    with contextlib.suppress(OSError):
        chosen = (_PACKAGE.parent / ".java-home").read_text().strip()
        if chosen:
            os.environ["JAVA_HOME"] = chosen


def _configuration(master: str) -> dict[str, str]:
    """conf/spark-defaults.conf, beside the sources or in the wheel, for a session of our own."""
    found: dict[str, str] = {}
    if master.startswith("local"):
        # Nobody else calls. A cluster's executors must reach the driver, or the run would wait for them for ever.
        found |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    for folder in (_PACKAGE.parent / "conf", _PACKAGE / "_conf"):
        defaults, log = folder / "spark-defaults.conf", folder / "log4j2.properties"
        if defaults.exists():
            for line in defaults.read_text().splitlines():
                name, _, value = line.strip().partition(" ")
                if name and not name.startswith("#"):
                    found[name] = value.strip()
            found["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log.as_uri()}"
            break
    return found


def get_session(master: str) -> tuple[SparkSession, bool]:
    """The session to work in, and whether it is our own to stop."""
    # getActiveSession() knows only this thread's; a context of any thread means that somebody else's session is there.
    if SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate(), False
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("rocketmq-reindex")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Not under spark-submit, which brings its own settings.
        _choose_java()
        master = master or "local[*]"
        builder = builder.master(master)
        for name, value in _configuration(master).items():
            builder = builder.config(name, value)
    elif master:
        builder = builder.master(master)
    on_main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if on_main else None
    try:
        spark = builder.getOrCreate()
        if on_main:
            # SparkContext puts a handler of its own there.
            signal.signal(signal.SIGINT, interrupt)
        return spark, True
    except Exception as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise InputError(
            f"Spark does not start: {first[0]}: is there a JDK 17 or 21 (JAVA_HOME)? make setup finds one"
        ) from error


@contextlib.contextmanager
def run_settings(spark: SparkSession, settings: Mapping[str, str] = _RUN_SETTINGS) -> Iterator[None]:
    """Settings of the session, by default those that a run needs, put back afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
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


def asked_partitions(spark: SparkSession) -> int:
    """The user's own number of shuffle partitions; 0 when there is none."""
    asked = int(spark.conf.get("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS_DEFAULT)) or 0)
    return 0 if asked == SHUFFLE_PARTITIONS_DEFAULT else asked


def plan_shuffle(buckets: int, cores: int, asked: int) -> tuple[int, int]:
    """(partitions, buckets) of a shuffle for at least so many buckets.

    A bucket bounds what a task holds, a task costs time by itself: so few tasks that take many buckets one after another, and
    equally many each. ``asked`` partitions are the user's own number, 0 for none.
    """
    partitions = asked or min(buckets, TASKS_PER_CORE * cores)
    return partitions, buckets if partitions >= buckets else -(-buckets // partitions) * partitions


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
