"""Spark sessions of the tests: started as the command line starts its own, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark import session
from tests.tools.jvm import SMALL_TABLES, end_jvm


def few_rows(spark: SparkSession) -> None:
    """A test may have changed what small tables need."""
    for name, value in SMALL_TABLES.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The active session, with master local[2] unless a parameter names another. Stopped when its tests are done."""
    found, own = session.get_session(getattr(request, "param", "local[2]"))
    assert own, "a session was left by another test"
    yield found
    session.stop(found)


class _Jvm:
    """Whether the JVM is one of Delta's tests, and the next test is one, too: to warm it up takes as long as many a test."""

    is_kept = is_wanted = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(nextitem: pytest.Item | None) -> None:
    _Jvm.is_wanted = "delta" in getattr(nextitem, "fixturenames", ())


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The same with Delta Lake, in a JVM that runs in an empty folder, and that such tests alone share."""
    if not _Jvm.is_kept:
        end_jvm()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("jvm"))
        found, own = session.get_session("local[2]", delta=True)
    assert own, "a session was left by another test"
    few_rows(found)
    yield found
    session.stop(found)
    _Jvm.is_kept = _Jvm.is_wanted
    if not _Jvm.is_kept:
        end_jvm()
