"""Who asks for the engine of one machine, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.engines.pool import Pool
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools.faulty_processes import in_session

Stores = Callable[[str], GoldenStore]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["build", "--out", "out", "--tables", "tables"], "--tables: rows of Delta tables need Spark and Java"),
        (["build", "--out", "out", "--incremental"], "--incremental: name --tables as well"),
        (
            ["build", "--out", "out", "--tables", "tables", "--incremental", "--messages-table"],
            "--messages-table and --build-id: rows of Delta tables need Spark and Java",
        ),
        (["build", "--out", "out", "--master", "spark://host:7077"], "--engine local runs on this machine alone"),
        (["build", "--out", "out", "--master", "local-cluster[1,1,1024]"], "--engine local runs on this machine alone"),
        (["verify", "--master", "yarn"], "--engine local runs on this machine alone"),
    ],
)
def test_what_needs_spark_is_wrong_usage(
    words: list[str], line: str, golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with mock.patch.object(Pool, "__init__", side_effect=AssertionError("something was started")):
        assert main([words[0], str(golden_store("trimmed-head").path), "--engine=local", *words[1:]]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("error: ")
    assert line in said[0]
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(rr.UsageError, match="invalid choice: 'flink'"):
        rr.build(tmp_path, out=tmp_path / "out", engine="flink")  # type: ignore[arg-type]


def test_a_session_beside_it(golden_store: Stores, tmp_path: Path) -> None:
    spark: Any = object()
    with pytest.raises(rr.UsageError, match="engine local has no use for a session"):
        rr.build(golden_store("trimmed-head").path, out=tmp_path / "out", engine="local", spark=spark)
    with pytest.raises(rr.UsageError, match="engine local has no use for a session"):
        rr.verify(golden_store("trimmed-head").path, engine="local", spark=spark)


def test_several_runs_at_once_in_threads(golden_store: Stores, tmp_path: Path) -> None:
    """Each has processes of its own, and none is left."""
    stores = [golden_store(name) for name in ("trimmed-head", "transactions-delay")]

    def both(number: int) -> None:
        store, out = stores[number], tmp_path / f"{number}"
        settings: dict[str, Any] = {**store.broker_settings(), "master": "local[2]", "engine": "local"}
        built = rr.build(store.path, out=out, **settings)
        assert (built.exit_status, built.warnings) == (0, [])
        verified = rr.verify(out, commitlog=store.path / "commitlog", engine="local")
        assert (verified.exit_status, verified.findings) == (0, [])
        assert_is_rebuilt(out, store)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(both, range(2)))
    assert not [
        words for parent, words in in_session(os.getsid(0)).values() if parent == os.getpid() and "worker.pool" in words
    ]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("worker-")]


def test_two_stores_against_each_other(golden_store: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = golden_store("trimmed-head").path, golden_store("transactions-delay").path
    shutil.copytree(one, tmp_path / "same")
    assert main(["verify", str(one), "--against", str(tmp_path / "same"), "--engine=local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    shutil.rmtree(tmp_path / "same")
    assert main(["verify", str(one), "--against", str(other), "--engine=local", "--work", str(tmp_path)]) == 4
    assert list(tmp_path.iterdir()) == []
