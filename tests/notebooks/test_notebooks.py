"""The notebooks, cell by cell, in a session of local Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore, read_files
from tests.golden.test_build import assert_is_rebuilt
from tests.notebooks.notebook import FOLDER, cells, magic, run
from tests.tools import spoil

Stores = Callable[[str], GoldenStore]
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_short_and_in_the_source_format(name: str) -> None:
    assert (FOLDER / f"{name}.py").read_text(encoding="utf-8").count("\n") < 60
    kinds = [magic(cell)[0] for cell in cells(name)]
    assert kinds[0] == "md"
    assert set(kinds) <= {"md", "sql", ""}


def test_rebuild(spark: SparkSession, golden_store: Stores, tmp_path: Path) -> None:
    store, out = golden_store("v2-ipv6-batch"), tmp_path / "out"
    more = f"--broker-version {store.broker_version} --checkpoint broker {' '.join(store.size_words())}"
    before = spark.sparkContext.applicationId
    with guarded(store.path, out):
        shown = run("rebuild", spark, store=str(store.path), out=str(out), queue_order="broker", more=more)
    assert shown.error is None
    summary = {row.name: json.loads(row.value) for row in shown.tables[0]}
    assert (summary["exit"], summary["records"], summary["error"]) == (0, 1885, None)
    assert_is_rebuilt(out, store)
    # In the notebook's own session, which goes on.
    assert (spark.sparkContext.applicationId, spark.range(3).count()) == (before, 3)


def test_rebuild_refuses_and_salvages(spark: SparkSession, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("v2-ipv6-batch")
    damaged = spoil.copy_store(store.path, tmp_path / "damaged")
    spoil.flip_body(damaged, 700)
    given = {"store": str(damaged), "out": str(tmp_path / "out"), "more": " ".join(store.size_words())}
    refused = run("rebuild", spark, **given)
    assert "exit status 5" in str(refused.error)
    assert not (tmp_path / "out").exists()
    salvaged = run("rebuild", spark, on_damage="salvage", **given)
    assert salvaged.error is None
    assert {row.name: json.loads(row.value) for row in salvaged.tables[0]}["records"] == 1884


def test_verify(spark: SparkSession, golden_store: Stores, tmp_path: Path) -> None:
    store, built = golden_store("v2-ipv6-batch"), tmp_path / "built"
    shutil.copytree(store.path / "rebuilt", built)
    (tmp_path / "work").mkdir()
    given = {"store": str(built), "commitlog": str(store.path / "commitlog"), "work": str(tmp_path / "work")}
    clean = run("verify", spark, **given)
    assert (clean.error, clean.tables) == (None, [[]])
    (path,) = list((built / "consumequeue").rglob("0" * 20))[:1]
    path.write_bytes(bytes([path.read_bytes()[7] ^ 1]) * 20 + path.read_bytes()[20:])
    differs = run("verify", spark, **given)
    assert str(differs.error).startswith("exit status 4: rmq-reindex build")
    assert {row.kind for row in differs.tables[0]} & {"queue-unit-missing", "queue-unit-no-record", "queue-unit-other"}
    assert all(row["count"] > 0 and json.loads(row.places) for row in differs.tables[0])


def test_explore(spark: SparkSession, golden_store: Stores, tmp_path: Path) -> None:
    """A store whose newest IndexFile and one queue are gone."""
    store, broken = golden_store("v2-ipv6-batch"), tmp_path / "broken"
    shutil.copytree(store.path / "rebuilt", broken)
    shutil.copytree(store.path / "commitlog", broken / "commitlog")
    max((broken / "index").iterdir()).unlink()
    lost = max((broken / "consumequeue").glob("*/*"), key=lambda queue: sum(path.stat().st_size for path in queue.iterdir()))
    units = sum(content[at + 8 : at + 12] != bytes(4) for content in files_of(lost) for at in range(0, len(content), 20))
    shutil.rmtree(lost)
    content, unread, unfound = run("explore", spark, store=str(broken)).tables
    assert sum(row.messages for row in content) == 1885
    assert [row.bytes for row in content] == sorted((row.bytes for row in content), reverse=True)
    assert {(row.topic, str(row.queueId)) for row in unread} == {(lost.parent.name, lost.name)}
    assert len(unread) == min(units, 100)
    assert unfound
    assert all(len(row.id) in (32, 56) for row in unfound)
    whole = run("explore", spark, store=str(broken), topic=lost.parent.name).tables[0]
    assert [row.topic for row in whole] == [lost.parent.name]
    assert read_files(store.path / "rebuilt")


def files_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]
