"""ConsumeQueues in RocksDB through Spark: the same pairs and files as without, of queues in order and out of order.

By itself: the database of a build by Spark is made in the driver from tables of Python workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rocketmq_reindex.udfs.write.database as writing
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.golden.guard import guarded
from tests.golden.stores import read_files
from tests.serving.stores import keyed_log
from tests.tools import spoil
from tests.tools.local_engine import local_build, run_build

SETTINGS: dict[str, Any] = {"cq_file_size": 600, "hash_slots": 100, "index_items": 400, "on_damage": "salvage"}


def pairs_in(folder: Path) -> list[tuple[str, bytes, bytes]]:
    with Database(str(folder)) as database:
        return [(name, key, value) for name in ("default", "offset") for key, value in database.pairs(name)]


def test_a_random_log(seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage leaves gaps, which are filled in both kinds alike, whatever the ranges, tasks and tables."""
    assert spark.sparkContext.defaultParallelism == 2
    store = tmp_path / "store"
    keyed_log(store, 500, seed, topics=5, queues=4)
    for record in (300, 120, 119):
        spoil.garbage(store, record, seed)
    settings = SETTINGS | {"consumequeue_type": "both", "range_size": 5000}
    with guarded(store, tmp_path / "out"):
        told = run_build(BuildSettings(store=str(store), out=str(tmp_path / "out"), **settings).check(), SparkEngines(""))
    assert (told.exit, told.error) == (3, None)
    monkeypatch.setattr(writing, "TABLE_UNITS", 37)
    local_build(store, tmp_path / "local", **(settings | {"range_size": 0}))
    local_build(store, tmp_path / "files", **SETTINGS)
    assert pairs_in(tmp_path / "out" / "consumequeue") == pairs_in(tmp_path / "local" / "consumequeue")
    for name, data in read_files(tmp_path / "files").items():
        assert (tmp_path / "out" / name).read_bytes() == data
    # Each unit in a file stands in RocksDB at the same offset, the repeated ones that fill gaps, too.
    keys = [key for family, key, _ in pairs_in(tmp_path / "out" / "consumequeue") if family == "default"]
    assert len(keys) == told.units
    assert told.units > told.records
