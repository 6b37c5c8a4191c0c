"""Incremental builds on Spark, of a store that RocketMQ wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.fault.disk import tree
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.incremental.test_incremental import kept
from tests.spark.conftest import delta as delta
from tests.tools.local_engine import local_build, run_build

Stores = Callable[[str], GoldenStore]
SECONDS = 20
"""of the processor: a run that finds nothing new starts no Spark"""


def processor_seconds() -> float:
    """Of all children that have ended; others may have the machine."""
    times = os.times()
    return times.children_user + times.children_system


def test_a_store_that_grows(golden_store: Stores, delta: SparkSession, tmp_path: Path) -> None:
    golden = golden_store("basic-5.3")
    store, out, later = tmp_path / "store", tmp_path / "out", tmp_path / "later"
    shutil.copytree(golden.path / "commitlog", store / "commitlog")
    later.mkdir()
    last = max((store / "commitlog").iterdir())
    shutil.move(last, later / last.name)
    settings = golden.broker_settings()

    def build() -> BuildResult:
        words = BuildSettings(
            store=str(store), out=str(out), tables=str(tmp_path / "tables"), incremental=True, master="", **settings
        )
        return run_build(words.check(), SparkEngines(""))

    first = build()
    assert (first.exit, first.error) == (0, None)
    local_build(store, tmp_path / "full", **settings)
    assert tree(out) == tree(tmp_path / "full")
    shutil.move(later / last.name, last)
    second = build()
    assert (second.exit, second.error) == (0, None)
    assert second.incremental
    assert second.incremental["ranges_known"] == second.incremental["ranges"] - 1
    assert second.incremental["files_kept"]
    assert_is_rebuilt(out, golden)
    builds = delta.read.format("delta").load(f"file:{tmp_path}/tables/builds")
    assert [row.state for row in builds.collect()] == ["published"] * 2
    # And as a user would have it run every hour, though the manifest was removed.
    manifest = (out / "reindex.json").read_bytes()
    (out / "reindex.json").unlink()
    (out / "notes.txt").write_text("mine")
    before, begin = kept(out), processor_seconds()
    words = [str(store), "--out", str(out), "--incremental", "--tables", str(tmp_path / "tables"), "--json"]
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    found = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", "build", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert processor_seconds() - begin < SECONDS
    assert json.loads(found.stdout)["incremental"]["nothing_new"]
    assert "nothing new" in found.stderr
    assert (out / "reindex.json").read_bytes() == manifest
    after = {path: found for path, found in kept(out).items() if path not in (str(out), f"{out}/reindex.json")}
    assert after == {path: found for path, found in before.items() if path != str(out)}
