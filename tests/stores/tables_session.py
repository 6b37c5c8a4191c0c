"""A Spark session with Hadoop's S3A, as a user would add it, that knows no key of AWS."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark import session
from tests.tools.jvm import SMALL_TABLES, end_jvm

USER = "alice"
_JARS = Path(__file__).parents[1] / "s3a" / "target" / "classpath"


class Started(NamedTuple):
    spark: SparkSession
    said: Path
    """what the JVM printed"""


@contextlib.contextmanager
def started_session(folder: Path) -> Iterator[Started]:
    """It is alice in an HDFS."""
    said = folder / "said"
    end_jvm()
    with pytest.MonkeyPatch.context() as patched, said.open("wb") as file:
        for name in [name for name in os.environ if name.startswith("AWS_") or name == "HADOOP_USER_NAME"]:
            patched.delenv(name)
        # Behind all others: the archive of Spark's classes knows how the class path begins.
        patched.setenv("SPARK_DIST_CLASSPATH", _JARS.read_text().strip())
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            spark, own = session.get_session("local[2]", delta=True, hadoop_user=USER)
        finally:
            os.dup2(before, 2)
            os.close(before)
    assert own, "a session was left by another test"
    for name, value in (SMALL_TABLES | {"spark.sql.shuffle.partitions": "1"}).items():
        spark.conf.set(name, value)
    yield Started(spark, said)
    session.stop(spark)
    end_jvm()
