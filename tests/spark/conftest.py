"""Spark sessions of the tests: started as the command line starts its own, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark import session
from tests.tools.jvm import end_jvm


def few_rows(spark: SparkSession) -> None:
    """What runs over a few rows is not compiled: that takes most of the time."""
    for name, value in session.FEW_ROWS.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The active session, with master local[2] unless a parameter names another. Stopped when its tests are done."""
    found, own = session.get_session(getattr(request, "param", "local[2]"))
    assert own, "a session was left by another test"
    yield found
    session.stop(found)


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The same with Delta Lake, in a JVM of its own that runs in an empty folder."""
    end_jvm()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("jvm"))
        found, own = session.get_session("local[2]", delta=True)
    assert own, "a session was left by another test"
    # Of Delta's own shuffles; Spark's default of 200 costs these small tables minutes.
    found.conf.set("spark.sql.shuffle.partitions", "2")
    few_rows(found)
    # VACUUM lists folders by so many tasks: 10,000 by default.
    found.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    yield found
    session.stop(found)
    end_jvm()
