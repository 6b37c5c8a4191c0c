"""Batch ConsumeQueues and the draft of topics.json through Spark: the same bytes as without."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.building import decisions
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.golden.guard import guarded
from tests.tools.batch_log import MADE, batch_files, random_batch_log
from tests.tools.local_engine import local_build, run_build


def test_a_random_log(seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of a queue must come to its task in the order of the log, whatever the ranges and partitions."""
    monkeypatch.setattr(decisions, "FEW_RUNS", 0)
    assert spark.sparkContext.defaultParallelism == 2
    store, out = tmp_path / "store", tmp_path / "out"
    random_batch_log(store / "commitlog", seed)
    settings = {**MADE, "on_damage": "salvage", "max_fill": 10**7, "write_topics": True, "range_size": 2000}
    with guarded(store, out):
        summary = run_build(BuildSettings(store=str(store), out=str(out), **settings), SparkEngines(""))
    assert summary.exit in (0, 3)
    local_build(store, tmp_path / "local", **(settings | {"range_size": 0}))
    assert (tmp_path / "local" / "reindex.json").read_bytes() == (out / "reindex.json").read_bytes()
    assert batch_files(tmp_path / "local") == batch_files(out) != {}
    assert (tmp_path / "local" / "config" / "topics.json").read_bytes() == (out / "config" / "topics.json").read_bytes()
