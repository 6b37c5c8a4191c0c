"""The Python API in a session that is there: its examples, as the reference shows them, and the session afterwards."""

from __future__ import annotations

import doctest
import inspect
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex as rr
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
