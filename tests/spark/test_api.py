"""The Python API in a session that is there: its examples, as the reference shows them, and the session afterwards."""

from __future__ import annotations

import doctest
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.spark import session
from tests.golden.stores import GoldenStore

FUNCTIONS = (
    "info",
    "options",
    "build",
    "repair",
    "verify",
    "inspect",
    "messages",
    "report",
    "preflight",
    "fetch",
    "query",
    "trace",
    "consumers",
    "export",
    "import_messages",
    "replay",
    "browse",
)
"""in an order in which each finds what it needs"""


def test_the_examples_of_the_docstrings(
    spark: SparkSession,
    golden_store: Callable[[str], GoldenStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(golden_store("basic-5.3").path / "commitlog", tmp_path / "store" / "commitlog")
    monkeypatch.chdir(tmp_path)
    before = spark.sparkContext.applicationId
    ran = 0
    for name in FUNCTIONS:
        function = getattr(rr, name)
        test = doctest.DocTestParser().get_doctest(
            inspect.getdoc(function) or "", {"spark": spark}, name, inspect.getsourcefile(function), 0
        )
        failures: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=failures.append)
        assert not failures, "".join(failures)
        ran += len(test.examples)
    assert ran > 2 * len(FUNCTIONS)
    assert {name for name in rr.__all__ if inspect.isfunction(getattr(rr, name))} == set(FUNCTIONS)
    # The session goes on.
    assert (spark.sparkContext.applicationId, spark.range(3).count()) == (before, 3)
    assert "ReindexError" not in capsys.readouterr().err


def test_runs_at_once_leave_the_settings_of_the_session(spark: SparkSession) -> None:
    """Whichever of them ends first, and by whatever object of Python it knows the session."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    again = SparkSession(spark.sparkContext, spark._jsparkSession)
    for before in ("777", None):
        spark.conf.set(name, before) if before else spark.conf.unset(name)
        known = spark.conf.get(name)
        first, second = session.run_settings(spark), session.run_settings(again, {name: "17"})
        first.__enter__()
        second.__enter__()
        assert spark.conf.get(name) == "17"
        first.__exit__(None, None, None)
        assert spark.conf.get(name) == "17", "the second run is not over"
        second.__exit__(None, None, None)
        assert spark.conf.get(name) == known


def test_a_setting_that_the_session_refuses_is_not_held(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    with (
        pytest.raises(Exception, match=r"CANNOT_MODIFY|Cannot modify"),
        session.run_settings(spark, {name: "5", "spark.sql.warehouse.dir": "/elsewhere"}),
    ):
        pass
    assert (spark.conf.get(name), session._held) == (before, [])


SESSIONS = """
import sys
from pyspark.sql import SparkSession
from rocketmq_reindex.jobs.spark import engine
for place in sys.argv[1:]:
    new = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.local.dir", place)
    with new.getOrCreate() as session:
        made = engine._cell_folders(session)
        print(*(made.folders if made else ()), flush=True)
"""


def test_what_tasks_keep_lies_in_the_folders_of_the_session(tmp_path: Path) -> None:
    """Of a later session in the same JVM, too, as in a notebook whose first one had a disk that was full."""
    one, other, last = (tmp_path / name for name in ("one", "other", "last"))
    (tmp_path / "link").symlink_to(other, target_is_directory=True)
    other.mkdir()
    words = [sys.executable, "-c", SESSIONS, f"{one},{tmp_path / 'link'}", str(last)]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
    told = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    first, later = (line.split() for line in told.splitlines())
    assert [Path(folder).parents[1] for folder in first] == [one, other]
    assert [Path(folder).parents[1] for folder in later] == [], "Spark made its folders once: cells go through the shuffle"
    assert list(one.iterdir()) == list(other.iterdir()) == []
