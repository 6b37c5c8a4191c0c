"""ConsumeQueues built in a RocksDB database: the pairs of real brokers, on any cut of the work, fetched, and converted."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
import rocketmq_reindex.udfs.write.database as writing
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.layouts import rocksdb_files
from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueEnd
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.write.database import SpooledQueue, UnitStretch, cut
from tests.golden.stores import unpack
from tests.tools.local_engine import InlineEngine, local_build, local_repair
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

NAMES = ("rocksdb-5.3", "rocksdb-5.5")
SIZES: dict[str, Any] = {"cq_file_size": 2000, "hash_slots": 1000, "index_items": 2000}


def pairs_in(folder: Path) -> list[str]:
    with Database(str(folder)) as database:
        return [f"{name}\t{key.hex()}\t{value.hex()}" for name in ("default", "offset") for key, value in database.pairs(name)]


def ends_in(folder: Path) -> list[QueueEnd]:
    database = QueueDatabase(str(folder))
    try:
        return list(database.ends())
    finally:
        database.close()


def is_first_end(pair: str) -> bool:
    return pair.startswith("offset") and b"\x01min\x01" in bytes.fromhex(pair.split("\t")[1])


@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_a_broker(name: str, tmp_path: Path) -> None:
    """All that the broker wrote, and each queue's first end, which it writes when it is asked; 5.3 had lost its first unit."""
    store = unpack(name, tmp_path).path
    built = local_build(store, tmp_path / "out", consumequeue_type="rocksdb", checkpoint="broker")
    assert (built.exit, built.units, built.files) == (0, 95, {"consumequeue": 0, "index": 1, "rocksdb": 2})
    assert "wrote    95 units in RocksDB, " in built.to_text()
    folder = tmp_path / "out" / "consumequeue"
    assert sorted(path.name for path in folder.iterdir()) == rocksdb_files(path.name for path in folder.iterdir())
    real, ours = (store / "pairs.txt").read_text().splitlines(), pairs_in(folder)
    more = [pair for pair in ours if pair not in real]
    assert [pair for pair in real if pair not in ours] == []
    assert len([pair for pair in more if is_first_end(pair)]) == 4
    assert len(more) == 4 + (name == "rocksdb-5.3")
    for end in ends_in(folder):
        assert end.is_max or end.queue_offset == 0
    manifest = json.loads((tmp_path / "out" / "reindex.json").read_text())
    assert {entry["path"] for entry in manifest["files"]} >= {f"consumequeue/{path.name}" for path in folder.iterdir()}
    assert (manifest["settings"]["consumequeue_type"], manifest["settings"]["rocksdb_separate"]) == ("rocksdb", False)


def test_any_cut_of_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tasks, ranges and tables: the same pairs, and with the files the same files as without a database."""
    store = unpack("rocksdb-5.5", tmp_path).path
    assert local_build(store, tmp_path / "files", **SIZES).exit == 0
    found = set()
    for number, (table, engine, size) in enumerate(
        ((4_000_000, InlineEngine(), 0), (7, InlineEngine(5, 3), 900), (1, InlineEngine(1, 1), 5000))
    ):
        monkeypatch.setattr(writing, "TABLE_UNITS", table)
        out = tmp_path / str(number)
        built = local_build(store, out, engine, consumequeue_type="both", range_size=size, **SIZES)
        assert (built.exit, built.files["consumequeue"]) == (0, 4)
        for path in (tmp_path / "files" / "consumequeue").rglob("0" * 17 + "*"):
            assert (out / path.relative_to(tmp_path / "files")).read_bytes() == path.read_bytes()
        tables = len(list((out / "consumequeue").glob("*.sst")))
        assert tables == 1 + -(-95 // table)
        found.add("\n".join(pairs_in(out / "consumequeue")))
    assert len(found) == 1


def test_stretches() -> None:
    """Tables of equally many units, whatever the queues; one without units passes through."""

    def queue(name: str, *counts: int) -> bytes:
        return SpooledQueue(name, 0, "spool", [[36 * k, count] for k, count in enumerate(counts)]).to_line()

    lines = [queue("a", 2, 1), queue("b"), queue("c", 7), queue("d", 1), queue("e", 1)]
    at = [sum(map(len, lines[:number])) for number in range(len(lines))]
    told = list(cut(iter(lines), 4))
    assert [line for line, _ in told if line] == lines
    stretches = [stretch for _, stretch in told if stretch]
    assert stretches == [UnitStretch(0, 0, 4), UnitStretch(at[2], 1, 4), UnitStretch(at[2], 5, 4)]
    assert [stretch for _, stretch in cut(iter(lines[:1]), 4) if stretch] == [UnitStretch(0, 0, 3)]
    assert [stretch for _, stretch in cut(iter(lines[:1]), 3) if stretch] == [UnitStretch(0, 0, 3)]
    assert list(cut(iter([]), 4)) == []


def test_check_point(tmp_path: Path) -> None:
    """The safe one is the begin of the last record: a start dispatches what lies above it."""
    store = unpack("rocksdb-5.5", tmp_path).path
    found = []
    for kind in ("broker", "safe"):
        assert local_build(store, tmp_path / kind, consumequeue_type="rocksdb", checkpoint=kind).exit == 0
        database = QueueDatabase(str(tmp_path / kind / "consumequeue"))
        found.append(database.dispatched())
        database.close()
    assert found == [0x5690, 0x55F8]


def test_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The database takes the place of the store's own, which is kept; info and verify are content."""
    store = unpack("rocksdb-5.3", tmp_path).path
    assert kinds(local_verify(store)) == {"queue-unit-missing": 1, "index-item-missing": 4}
    before = pairs_in(store / "consumequeue")
    assert local_build(store, tmp_path / "out", consumequeue_type="rocksdb").exit == 0
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    assert pairs_in(store / "consumequeue.previous") == before
    assert kinds(local_verify(store)) == {}
    assert "RocksDB" not in "".join(rr.info(str(store)).problems)
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    assert "already there" in capsys.readouterr().out


def test_a_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the setting of a broker.conf, or where STORE has it; RocketMQ 5.5 starts on one database alone."""
    store, conf = unpack("rocksdb-5.5", tmp_path).path, tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\nuseSeparateStorePathForRocksdbCQ=true\n")
    settings = parse_settings([str(store), "--out", str(tmp_path / "out"), "--broker-conf", str(conf), "--engine", "local"])
    assert (settings.consumequeue_type, settings.rocksdb_separate) == ("rocksdb", True)
    taken = {name: getattr(settings, name) for name in ("consumequeue_type", "rocksdb_separate", "rocksdb")}
    built = local_build(store, tmp_path / "out", **taken)
    assert built.exit == 0
    assert "--broker-conf: has storeType=defaultRocksDB: ConsumeQueues are built in RocksDB" in built.notes
    assert any("and RocketMQ 5.5 does not start on two" in warning for warning in built.warnings)
    assert not (tmp_path / "out" / "consumequeue").exists()
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 1
    assert "RocketMQ 5.5 does not start on two: move these files away first" in capsys.readouterr().err
    for path in (store / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    assert sorted(path.name for path in (store / "consumequeue").iterdir()) == ["orders-0", "orders-1"]
    assert (kinds(local_verify(store)), (store / "consumequeue_rocksdb" / "CURRENT").exists()) == ({}, True)
    again = local_build(store, tmp_path / "again", consumequeue_type="both")
    assert "consumequeue_rocksdb: the database is built there, as STORE has it" in again.notes
    assert (tmp_path / "again" / "consumequeue_rocksdb" / "CURRENT").exists()
    assert fetch([str(tmp_path / "again"), "--to", str(store)]) == 0
    assert (kinds(local_verify(store)), (store / "consumequeue_rocksdb.previous").exists()) == ({}, True)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("rocksdb", "in RocksDB"), ("both", "as files and in RocksDB"), ("", "as files, light ones in RocksDB, too")],
)
def test_a_kind_that_is_given_beside_a_broker_of_light_queues(kind: str, told: str, tmp_path: Path) -> None:
    """It wins: no database lacks the queues that were asked for."""
    store, conf = unpack("rocksdb-5.5", tmp_path).path, tmp_path / "broker.conf"
    lines = ("rocksdbCQDoubleWriteEnable=true", "rocksdbCQSelectiveDoubleWriteEnable=true")
    conf.write_text("\n".join(lines))
    words = ["--consumequeue-type", kind] if kind else []
    settings = parse_settings([str(store), "--out", str(tmp_path / "out"), "--broker-conf", str(conf), *words])
    taken = {name: getattr(settings, name) for name in ("consumequeue_type", "rocksdb_light", "rocksdb")}
    built = local_build(store, tmp_path / "out", **taken)
    assert built.exit == 0
    assert f"--broker-conf: has {lines[0]} and {lines[1]}: ConsumeQueues are built {told}" in built.notes
    assert len([end for end in ends_in(tmp_path / "out" / "consumequeue") if end.is_max]) == (4 if kind else 0)


def test_a_fetch_keeps_files_and_database_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A database in consumequeue/ takes the place of files, which stay beside it; files never take that of a database."""
    store = unpack("rocksdb-5.5", tmp_path).path
    built = local_build(store, tmp_path / "out", consumequeue_type="rocksdb")
    assert any(
        "a fetch takes the place of this folder: --consumequeue-type both builds both" in told for told in built.warnings
    )
    assert local_build(store, tmp_path / "files", consumequeue_type="file").exit == 0
    assert fetch([str(tmp_path / "files"), "--to", str(store)]) == 1
    assert "no files are put in their place" in capsys.readouterr().err
    assert local_build(store, tmp_path / "both", consumequeue_type="both").exit == 0
    lacking = "the ConsumeQueue files beside it go to consumequeue.previous, too, and the build has none"
    for name, told in (("both", False), ("out", True)):
        assert fetch([str(tmp_path / name), "--to", str(store), "--dry-run"]) == 0
        assert (lacking in capsys.readouterr().err) == told
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    told_at_last = capsys.readouterr().err
    assert lacking in told_at_last
    # The build has no file, of whatever size.
    assert "had files of" not in told_at_last
    assert (store / "consumequeue.previous" / "orders-0").is_dir()


def test_an_empty_log(tmp_path: Path) -> None:
    """A database without a unit: a broker says nothing else of a log without a message."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 14))
    built = local_build(tmp_path / "store", tmp_path / "out", consumequeue_type="rocksdb", allow_empty=True)
    assert built.exit == 0
    assert pairs_in(tmp_path / "out" / "consumequeue") == [f"offset\t{pairs.CHECKPOINT_KEY.hex()}\t{bytes(8).hex()}"]


def test_a_repair(tmp_path: Path) -> None:
    """By the same steps, of the mended log."""
    store = unpack("rocksdb-5.5", tmp_path).path
    repaired = local_repair(store, tmp_path / "out", consumequeue_type="rocksdb")
    assert repaired.exit == 0
    assert kinds(local_verify(tmp_path / "out")) == {}
    assert len(pairs_in(tmp_path / "out" / "consumequeue")) == 95 + 9


def test_a_topic_of_the_name_of_the_check_point(tmp_path: Path) -> None:
    """A broker writes its check point behind the queue's end, under the same key."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for number in range(3):
            writer.append(Message(topic=pairs.CHECKPOINT_TOPIC.decode(), queue_offset=number))
    assert local_build(tmp_path / "store", tmp_path / "out", consumequeue_type="rocksdb", **SIZES).exit == 0
    database = QueueDatabase(str(tmp_path / "out" / "consumequeue"))
    assert database.dispatched() == writer.puts[-1].offset
    assert not [end for end in database.ends() if end.is_max]
    database.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--incremental", "--tables", "t"], "goes without --incremental, which cannot go on with a database"),
        (["--queue-order", "broker"], "goes without --queue-order broker"),
        (["--only", "index"], "type both: goes with consumequeue, which --only leaves out"),
        (["--only", "index", "--expired-queues", "keep"], "queues keep: goes with consumequeue, which --only leaves out"),
        (["--consumequeue-type", "rocksdb", "--cq-ext", "plain"], "type rocksdb does not make: leave one out, or take both"),
    ],
)
def test_wrong_usage(words: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        parse_settings([str(tmp_path), "--out", str(tmp_path / "out"), "--consumequeue-type", "both", *words])


def test_settings_of_a_broker_that_do_not_apply(tmp_path: Path) -> None:
    """A broker.conf is no wrong usage: of an index alone, and with consumequeue_ext, which a database has not."""
    store, conf, out = unpack("rocksdb-5.5", tmp_path).path, tmp_path / "broker.conf", tmp_path / "out"
    conf.write_text("storeType=defaultRocksDB\nenableConsumeQueueExt=true\n")
    words = [str(store), "--out", str(out), "--broker-conf", str(conf)]
    assert parse_settings([*words, "--only", "index"]).only == ("index",)
    settings = parse_settings(words)
    assert (settings.cq_ext, settings.consumequeue_type) == ("plain", "rocksdb")
    assert local_build(store, out, cq_ext="plain", bloom_error_rate=20, consumequeue_type="rocksdb").exit == 0
    assert not {"cq_ext", "cq_ext_file_size"} & set(json.loads((out / "reindex.json").read_text())["settings"])


def test_where_no_database_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack("rocksdb-5.5", tmp_path).path
    taken: dict[str, Any] = {"consumequeue_type": "rocksdb"}
    with pytest.raises(Exception, match=r"RocketMQ 4\.9 keeps no ConsumeQueues in RocksDB"):
        raise_of(local_build(store, tmp_path / "out", broker_version="4.9", **taken))
    with pytest.raises(Exception, match="no STORE is named"):
        raise_of(local_build("", tmp_path / "out", commitlogs=(str(moved(store)),), expired_queues="keep", **taken))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(Exception, match=r"is read and written with rocksdict: pip install 'rocketmq-reindex\[rocksdb\]'"):
        raise_of(local_build(store, tmp_path / "out", **taken))


def moved(store: Path) -> Path:
    """The store's segments in a folder that no broker names."""
    return Path(shutil.copytree(store / "commitlog", store.with_name("segments")))


def raise_of(built: rr.BuildResult) -> None:
    if built.error is not None:
        raise RuntimeError(built.error)
