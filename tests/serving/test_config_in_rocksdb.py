"""Topics, groups and consumer offsets that a real broker keeps in RocksDB: we read what the broker itself has."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.store import config_databases, consumer_offsets
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.topics import GROUPS, OFFSETS, PARTS, TOPICS
from tests.serving.broker import Broker, write_topics
from tests.serving.programs import Program

PATIENCE = 300
"""seconds"""
FORMS = [
    pytest.param("5.3.3", "storeType=defaultRocksDB", ("topics", "subscriptionGroups", "consumerOffsets"), id="5.3.3"),
    pytest.param("5.5.1", "storeType=defaultRocksDB,useSingleRocksDBForAllConfigs=true", ("metadata",), id="5.5.1-one"),
    pytest.param("5.5.1", "configManagerVersion=v2", ("rdb",), id="5.5.1-v2"),
    pytest.param("5.3.3", "configManagerVersion=v2", ("rdb",), id="5.3.3-v2", marks=pytest.mark.slow),
    pytest.param(
        "5.5.1", "storeType=defaultRocksDB", ("topics", "subscriptionGroups", "consumerOffsets"), id="5.5.1-each",
        marks=pytest.mark.slow,
    ),
]  # fmt: skip


def said_by(folder: Path) -> dict[str, Any]:
    """The three tables as the broker writes them into files."""
    return {part.table: layouts.loads((folder / part.file).read_text())[part.table] for part in PARTS}


def copied(store: Path, copy: Path) -> Path:
    """A copy of a store while its broker runs, made anew where a database has put a file in the place of another meanwhile."""
    until = time.monotonic() + PATIENCE
    while True:
        before = sorted((store / "config").rglob("*"))
        try:
            shutil.copytree(store, copy)
            if before == sorted((store / "config").rglob("*")):
                return copy
        except shutil.Error:
            pass
        assert time.monotonic() < until, "the files of its databases do not come to rest"
        shutil.rmtree(copy)


@pytest.mark.parametrize(("version", "setting", "folders"), FORMS)
def test_as_the_broker_has_it(version: str, setting: str, folders: tuple[str, ...], tmp_path: Path) -> None:
    """A broker makes its databases, gets topics, groups and offsets, and writes what it has as JSON elsewhere: we read that."""
    store, said = tmp_path / "store", tmp_path / "said"
    store.mkdir()
    write_topics(store, [])
    commits: list[str | int] = ["gruppe", "Orders", 0, 7, "gruppe", "Orders", 3, 0, "other", "Second", 1, 1 << 40]
    with Program(version, "Serve", tmp_path) as program, Broker(program, "config", store, tmp_path, "--set", setting):
        program.step("state", said, *commits)
        copy = copied(store, tmp_path / "copy")
    truth = said_by(said)
    assert {"gruppe", "other"} <= {name.partition("@")[2] for name in truth[OFFSETS.table]}
    files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (copy / "config").rglob("*") if path.is_file()}
    ours: dict[str, Any] = {}
    for folder in folders:
        tables = config_databases.read_folder(str(copy / "config" / folder))
        assert tables is not None
        for part, decoded in tables.items():
            assert not decoded.broken
            ours[part.table] = decoded.said[part.table]
    if folders == ("rdb",):
        # What a broker makes for itself at each start it does not put there.
        truth = {table: {name: entry for name, entry in truth[table].items() if name in ours[table]} for table in truth}
        assert {"Orders", "Second"} == set(truth[TOPICS.table])
        assert {"gruppe", "other"} == set(truth[GROUPS.table])
    assert ours == truth
    notes: list[str] = []
    (file,) = consumer_offsets.of_store(str(copy), Notes(notes.append))
    assert Path(file.path).name == folders[-1]
    assert file.said[OFFSETS.table] == truth[OFFSETS.table]
    topics = config_databases.topics(str(copy), Notes(notes.append))
    assert topics is not None
    assert topics.said[TOPICS.table] == truth[TOPICS.table]
    shown = [rr.inspect(copy / "config" / folder, records=True) for folder in folders]
    rows = [row for each in shown for row in each.records]
    assert {part.table: {row["name"]: row["entry"] for row in rows if row["table"] == part.table} for part in PARTS} == truth
    assert files == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    assert len(files) == sum(path.is_file() for path in (copy / "config").rglob("*"))
    # The file with which a broker that keeps offsets in RocksDB began has its topics: in the database they are newer.
    assert len(notes) == (folders != ("rdb",)) or "which counts" in notes[0]
