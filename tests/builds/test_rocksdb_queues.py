"""ConsumeQueues in RocksDB, as real brokers wrote them: read, verified, asked and compared with ConsumeQueue files.

rocksdb-5.3 is of a broker with storeType=defaultRocksDB, rocksdb-5.5 of one with rocksdbCQDoubleWriteEnable. Each has in
pairs.txt all pairs as the broker's own jar of RocksDB reads them.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict

import rocketmq_reindex as rr
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.commands import fetch, query
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, UsageError
from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueEnd, QueueName
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.sql.queue_source import ConsumeQueueSource
from tests.golden.stores import unpack
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify, run_verify
from tests.tools.read_rows import read_rows
from tests.unit.jobs.store import test_config_databases as config_stores

NAMES = ("rocksdb-5.3", "rocksdb-5.5")
QUEUES = [(topic, number) for topic in (b"orders-0", b"orders-1") for number in (0, 1)]
ORDERS = QueueName(b"orders-0", 0)


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A store with both kinds of ConsumeQueues."""
    return unpack("rocksdb-5.5", tmp_path).path


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The same store without ConsumeQueue files."""
    store = unpack("rocksdb-5.5", tmp_path / "alone").path
    without_files(store)
    return store


def without_files(store: Path) -> None:
    for topic in (store / "consumequeue").iterdir():
        if topic.is_dir():
            shutil.rmtree(topic)


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def changed(store: Path, puts: dict[bytes, bytes | None], family: str = "default") -> None:
    """Write pairs into the database of a store, or delete them (None)."""
    raw = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(store / "consumequeue"), raw, column_families={"offset": rocksdict.Options(raw_mode=True)})
    of_family = database if family == "default" else database.get_column_family(family)
    for key, value in puts.items():
        if value is None:
            of_family.delete(key)
        else:
            of_family[key] = value
    database.close()
    (store / "consumequeue" / "rocksdict-config.json").unlink(missing_ok=True)


def unit(queue: QueueName, offset: int) -> bytes:
    return pairs.unit_key(pairs.unit_prefix(queue), offset)


# --------------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", NAMES)
def test_pairs_as_the_jar_reads_them(name: str, tmp_path: Path) -> None:
    """And the folder is as it was, to the byte and the moment."""
    store = unpack(name, tmp_path).path
    folder = store / "consumequeue"
    before = state(folder)
    with Database(str(folder)) as database:
        ours = [
            f"{family}\t{key.hex()}\t{value.hex()}"
            for family in ("default", "offset")
            for key, value in database.pairs(family)
        ]  # fmt: skip
    assert ours == (store / "pairs.txt").read_text().splitlines()
    assert state(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_queues_and_their_ends(name: str, tmp_path: Path) -> None:
    database = QueueDatabase(str(unpack(name, tmp_path).path / "consumequeue"))
    try:
        queues = [tuple(queue) for queue in database.queues()]
        assert queues == QUEUES
        for queue in map(QueueName._make, queues):
            last = database.last(queue)
            assert last is not None
            found = [(at.tolist(), units) for at, units in database.units(queue, 0, last.queue_offset + 1)]
            offsets = [offset for at, _ in found for offset in at]
            first = database.first(queue)
            assert offsets == list(range(first or 0, last.queue_offset + 1))
            assert int(found[-1][1]["phy_offset"][-1]) == last.phy_offset
            assert database.value(queue, last.queue_offset + 1) is None
        end = max(end.phy_offset for end in database.ends() if end.is_max)
        dispatched = database.dispatched()
        assert dispatched is not None
        assert dispatched > end
    finally:
        database.close()


def test_keys_are_parsed_back() -> None:
    queues = [
        QueueName(b"", 0),
        QueueName("thème".encode(), 7),
        QueueName(b"\x01\x00\x01", 2**31 - 1),
        QueueName(b"x" * 300, 1),
    ]
    for queue in queues:
        prefix = pairs.unit_prefix(queue)
        key = pairs.unit_key(prefix, 5)
        assert pairs.queue_of_unit(key) == queue
        assert prefix <= key < pairs.behind(prefix)
        for is_max in (True, False):
            value = pairs.end_value(8, 9)
            assert pairs.queue_end(pairs.end_key(queue, is_max), value) == QueueEnd(queue, is_max, 8, 9)
            assert pairs.queue_end(pairs.end_key(queue, is_max), value[:8]) is None
        for length in range(len(key)):
            assert pairs.queue_of_unit(key[:length]) is None
        assert pairs.queue_of_unit(bytes([255]) + key[1:]) is None


@pytest.mark.parametrize(
    "spoil",
    [("CURRENT", b"MANIFEST-999999\n"), ("MANIFEST-000005", b""), ("000011.sst", b"no table")],
    ids=lambda it: str(it[0]),
)
def test_a_broken_database(spoil: tuple[str, bytes], alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "consumequeue" / spoil[0]).write_bytes(spoil[1])
    summary = local_verify(alone)
    assert summary.exit == 1
    assert str(summary.error).startswith(f"{alone}/consumequeue: RocksDB cannot read it: ")
    assert "/rmq-reindex-rocksdb-" not in str(summary.error), "a folder of links that is gone"
    assert query([str(alone), "--topic", "orders-0", "--queue", "0", "--offset", "3"]) == 1
    assert f"{alone}/consumequeue: RocksDB cannot read it: " in capsys.readouterr().err
    with pytest.raises(InputError, match="RocksDB cannot read it"):
        read_rows(ConsumeQueueSource, alone)


def without_current(folder: Path) -> str:
    (folder / "CURRENT").unlink()
    return "CURRENT"


def broken_units(folder: Path) -> str:
    return broken_block(folder / "000011.sst")


def broken_ends(folder: Path) -> str:
    return broken_block(folder / "000010.sst")


def broken_block(table: Path) -> str:
    """Bytes in the first block of a table, which RocksDB reads when it is asked for pairs. Return the file's name."""
    raw = bytearray(table.read_bytes())
    raw[100:140] = bytes(40)
    table.write_bytes(raw)
    return table.name


@pytest.mark.parametrize("spoil", [without_current, broken_units, broken_ends])
@pytest.mark.parametrize("kind", ["both", "rocksdb"])
def test_what_info_advises_of_a_broken_database(kind: str, spoil: Callable[[Path], str], both: Path) -> None:
    """Its advice leads to a sound store, and so does verify's and preflight's, which name info, and the file that is broken."""
    if kind == "rocksdb":
        without_files(both)
    name = spoil(both / "consumequeue")
    conf = both.parent / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    with pytest.raises(InputError, match="RocksDB cannot read it") as raised:
        rr.preflight(both, broker_conf=conf)
    told = [str(local_verify(both).error), str(raised.value)]
    look = rr.info(str(both))
    (problem,) = (text for text in look.problems if "RocksDB cannot read it" in text)
    advised = [text.endswith("; rmq-reindex info STORE says how to build it again") for text in (*told, problem)]
    assert advised == [True, True, False]
    assert all(name in text for text in (*told, problem))
    building, fetching = look.next["commands"]
    assert f"--consumequeue-type {kind}" in building
    assert local_build(both, Path(f"{both}.rebuilt"), consumequeue_type=kind).exit == 0
    assert f"{both}.rebuilt --to {both}" in fetching
    assert fetch([f"{both}.rebuilt", "--to", str(both)]) == 0
    assert kinds(local_verify(both)) == {}


def test_a_database_that_may_not_be_read_is_not_built_again(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another user than the broker's, or where no temporary folder has room: it may be sound."""

    def refused(path: str, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(shutil, "copyfile", refused)
    error = str(local_verify(both).error)
    assert "RocksDB cannot read it: [Errno 13] Permission denied" in error
    assert "build" not in error
    assert not any("rmq-reindex build" in command for command in rr.info(str(both)).next["commands"])


@pytest.mark.parametrize("name", ["000010.sst", "000011.sst"])
def test_a_broken_block(name: str, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Units behind it are not taken for missing, nor is their message: RocksDB's own loops end there without a word."""
    broken_block(alone / "consumequeue" / name)
    with Database(str(alone / "consumequeue")) as database:
        family = "default" if name == "000011.sst" else "offset"
        with pytest.raises(InputError, match=r"RocksDB cannot read it: Corruption: block checksum mismatch"):
            list(database.pairs(family))
        with pytest.raises(InputError, match="block checksum mismatch"):
            database.first(family, b"", b"\xff")
        with pytest.raises(InputError, match="block checksum mismatch"):
            database.last(family, b"", b"\xff")
    summary = local_verify(alone)
    assert (summary.exit, "block checksum mismatch" in str(summary.error)) == (1, True)
    assert query([str(alone), "--topic", "orders-0", "--queue", "0", "--offset", "3"]) != 0
    assert "block checksum mismatch" in capsys.readouterr().err
    with pytest.raises(InputError, match="block checksum mismatch"):
        read_rows(ConsumeQueueSource, alone)


def test_rows_of_spoilt_units(alone: Path) -> None:
    changed(alone, {unit(ORDERS, 3): b"abc", unit(ORDERS, 4): bytes(28)})
    assert len(read_rows(ConsumeQueueSource, alone)) == 93
    rows = [row for row in read_rows(ConsumeQueueSource, alone, damage="rows") if row["damage"] is not None]
    assert [(row["consumeQueueOffset"], row["damage"]) for row in rows] == [(3, "no unit"), (4, "no unit")]
    with pytest.raises(RefusedError, match=r"orders-0/0: damage: queue offset 3: no unit, 2 in all"):
        read_rows(ConsumeQueueSource, alone, damage="fail")


def test_a_gap(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes no time to pass over it."""
    changed(alone, {pairs.end_key(ORDERS, True): pairs.end_value(460, 2**40)}, "offset")
    with Database(str(alone / "consumequeue")) as database:
        value = database.get("default", unit(ORDERS, 3))
    changed(alone, {unit(ORDERS, 2**40): value})
    assert query([str(alone), "--topic", "orders-0", "--queue", "0", "--offset", "30", "--max", "99"]) == 0
    assert f"offsets 33 to {2**40 - 1}: has no unit in RocksDB" not in capsys.readouterr().out
    rows = read_rows(ConsumeQueueSource, alone)
    assert [row["consumeQueueOffset"] for row in rows if row["consumeQueueOffset"] > 40] == [2**40]
    assert len(rows) == 96
    assert [topic["queues"] for topic in rr.info(alone).topics if topic["topic"] == "orders-0"] == [2]
    behind_all = max(rr.messages(alone, columns=["storeTimestamp"]).read_all()["storeTimestamp"].to_pylist()) + 1
    words = ["--topic", "orders-0", "--queue", "0", "--time", str(behind_all)]
    for more in ([], ["--scan"]):
        assert query([str(alone), *words, *more]) == 0
        assert "nothing found" in capsys.readouterr().err


def test_files_that_a_broker_replaces_meanwhile(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is opened again while its files change, and not where they stay."""
    whole, tries, folder = Database._open, list[str](), alone / "consumequeue"

    def fails_twice(database: Database, place: str) -> None:
        tries.append(place)
        if len(tries) < 3:
            (folder / f"{90 + len(tries):06d}.sst").write_bytes(b"")
            raise InputError("a file is gone")
        whole(database, place)

    monkeypatch.setattr(Database, "_open", fails_twice)
    with Database(str(folder)) as database:
        assert len(list(database.pairs("default"))) == 95
    assert len(tries) == 3
    monkeypatch.setattr(Database, "_open", whole)
    (folder / "CURRENT").write_bytes(b"")
    with pytest.raises(InputError, match="RocksDB cannot read it"):
        Database(str(folder))


def test_another_database(tmp_path: Path) -> None:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    rocksdict.Rdict(str(tmp_path / "other"), options).close()
    with pytest.raises(InputError, match="has no column family 'offset': these are no ConsumeQueues"):
        QueueDatabase(str(tmp_path / "other"))
    with pytest.raises(InputError, match="read from a local folder alone"):
        QueueDatabase("s3://bucket/store/consumequeue")


def test_without_the_library(
    both: Path, alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    summary = local_verify(alone)
    assert (summary.exit, "pip install 'rocketmq-reindex[rocksdb]'" in str(summary.error)) == (1, True)
    words = ["--topic", "orders-0", "--queue", "0", "--offset", "3"]
    assert query([str(alone), *words]) == 1
    assert "pip install 'rocketmq-reindex[rocksdb]', or add --scan to read the whole log" in capsys.readouterr().err
    assert query([str(alone), *words, "--scan"]) == 0
    assert query([str(both), *words]) == 0
    assert "the ConsumeQueue files beside it are read" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------------------- verify


def test_a_sound_store(both: Path, alone: Path) -> None:
    summary = local_verify(alone)
    assert (summary.exit, kinds(summary)) == (0, {})
    assert (summary.units, summary.units_there, summary.queues, summary.database_queues) == (95, 95, 4, 4)
    assert "compared 95 units in 4 queues in RocksDB" in summary.to_text()
    (note,) = [note for note in summary.notes if "RocksDB" in note]
    assert note.endswith("it is compared, and says that the log is dispatched up to 22160")
    summary = local_verify(both)
    assert (summary.exit, kinds(summary), summary.database_queues) == (0, {}, 0)
    assert "RocksDB: 4 queues compared with the files" in summary.notes


def test_what_a_start_without_queues_loses(tmp_path: Path) -> None:
    """A broker that makes its queues in RocksDB anew passes over the record at offset 0 (5.3.3; 5.5.1 does the same)."""
    summary = local_verify(unpack("rocksdb-5.3", tmp_path).path)
    assert summary.exit == 4
    assert kinds(summary) == {"queue-unit-missing": 1, "index-item-missing": 4}
    (missing,) = [finding for finding in summary.findings if finding["kind"] == "queue-unit-missing"]
    assert "nothing instead of phy_offset 0" in json.dumps(missing)
    assert "--consumequeue-type rocksdb" in summary.to_text()


def spoilt() -> Iterator[Any]:
    """(name, pairs written over by their key's value, family, kinds that verify finds)"""
    queue = ORDERS

    def field(at: int, size: int) -> Any:
        return lambda value: value[:at] + bytes([value[at + size - 1] ^ 1] * size) + value[at + size :]

    yield pytest.param(unit(queue, 3), lambda _: None, "default", {"queue-unit-missing": 1}, id="missing")
    yield pytest.param(unit(queue, 3), field(8, 4), "default", {"queue-unit-size": 1}, id="size")
    yield pytest.param(unit(queue, 3), field(12, 8), "default", {"queue-unit-tags": 1}, id="tags")
    yield pytest.param(unit(queue, 3), field(20, 8), "default", {"queue-unit-time": 1}, id="time")
    yield pytest.param(unit(queue, 3), lambda value: value[:20], "default", {"queue-unit-missing": 1}, id="short")
    yield pytest.param(unit(queue, 3), field(0, 8), "default", {"queue-unit-no-record": 1}, id="place")
    yield pytest.param(pairs.end_key(queue, True), lambda _: None, "offset", {"queue-unit-missing": None}, id="no-end")
    yield pytest.param(
        pairs.end_key(queue, True), lambda value: value[:8] + (5).to_bytes(8, "big"), "offset",
        {"queue-unit-missing": None, "queue-end": 1}, id="early-end",
    )  # fmt: skip
    for end in (-2, -5, -(2**63), 2**63 - 1):
        yield pytest.param(
            pairs.end_key(queue, True), lambda _, end=end: pairs.end_value(100, end), "offset",
            {"queue-unit-missing": None, "queue-end": 1}, id=f"no-end-{end}",
        )  # fmt: skip
    for end in (100, 2**40, 2**63 - 2):
        yield pytest.param(
            pairs.end_key(queue, True),
            lambda _, end=end: pairs.end_value(100, end),
            "offset",
            {"queue-end": 1},
            id=f"end-{end}",
        )
    yield pytest.param(unit(queue, 3)[:-8] + bytes(9), lambda _: bytes(28), "default", {}, id="long-key")
    yield pytest.param(
        pairs.end_key(queue, True), lambda value: b"\x7f" + value[1:], "offset", {"queue-end": 1}, id="end-elsewhere"
    )
    yield pytest.param(
        pairs.end_key(QueueName(b"other", 0), True), lambda _: pairs.end_value(460, 0), "offset",
        {"queue-end": 1}, id="queue-without-units",
    )  # fmt: skip


@pytest.mark.parametrize(("key", "spoil", "family", "found"), [*spoilt()])
def test_spoilt(key: bytes, spoil: Any, family: str, found: dict[str, int | None], alone: Path) -> None:
    with Database(str(alone / "consumequeue")) as database:
        value = database.get(family, key)
    changed(alone, {key: spoil(value)}, family)
    summary = local_verify(alone)
    assert summary.exit == (4 if found else 0)
    assert kinds(summary).keys() == found.keys()
    assert rr.info(str(alone)).exit_status == 0
    assert all(count in (None, kinds(summary)[kind]) for kind, count in found.items())
    assert not found or "consumequeue/" in json.dumps(summary.findings)


def test_an_end_that_a_start_wrote(alone: Path) -> None:
    """It names the first offset of the log: seen with 5.5.0 where a start found the files further."""
    changed(alone, {pairs.end_key(ORDERS, True): pairs.end_value(0, 32)}, "offset")
    assert local_verify(alone).exit == 0


def test_units_behind_the_end_are_not_served(alone: Path) -> None:
    """A broker that cut its log leaves them, and others take their place."""
    queue = ORDERS
    end = QueueDatabase(str(alone / "consumequeue")).last(queue)
    assert end is not None
    changed(alone, {unit(queue, end.queue_offset + offset): b"\x01" * 28 for offset in (1, 2, 9)})
    assert local_verify(alone).exit == 0


def test_a_hostile_name(alone: Path) -> None:
    """It leads nowhere, and is shown escaped."""
    hostile = QueueName(b"../../x\x1b[31m", 0)
    changed(alone, {unit(hostile, 0): (460).to_bytes(8, "big") + b"\0\0\0\x09" + bytes(16)})
    changed(alone, {pairs.end_key(hostile, True): pairs.end_value(460, 0)}, "offset")
    summary = local_verify(alone)
    assert summary.exit == 4
    assert "\x1b" not in summary.to_text()
    topics = {row["topic"] for row in read_rows(ConsumeQueueSource, alone)}
    assert topics == {"orders-0", "orders-1", hostile.topic.decode()}


@pytest.mark.parametrize(
    ("key", "value", "family", "found"),
    [
        (unit(ORDERS, 3), None, "default", {"rocksdb-unit-missing": 1}),
        (unit(ORDERS, 3), b"\1" * 28, "default", {"rocksdb-unit-differs": 1}),
        (pairs.end_key(ORDERS, True), None, "offset", {"rocksdb-unit-missing": 33}),
        (pairs.end_key(ORDERS, True), pairs.end_value(1, 4), "offset", {"rocksdb-unit-missing": 28}),
    ],
    ids=["missing", "differs", "no-end", "early-end"],
)
def test_compared_with_files(key: bytes, value: bytes | None, family: str, found: dict[str, int], both: Path) -> None:
    """Files that are right show what is wrong in RocksDB."""
    changed(both, {key: value}, family)
    summary = local_verify(both)
    assert kinds(summary) == found
    assert summary.exit == 4
    assert "the files were compared with the log: where nothing else was found, RocksDB is wrong" in summary.to_text()


def test_files_lack_units(both: Path) -> None:
    """Both comparisons say it: that with the log, and that with RocksDB."""
    file = both / "consumequeue" / "orders-0" / "0" / f"{0:020d}"
    with file.open("r+b") as opened:
        opened.seek(20 * 30)
        opened.write(bytes(60))
    assert kinds(local_verify(both)) == {"queue-unit-missing": 3, "rocksdb-unit-extra": 3}


def test_light_queues_alone(both: Path) -> None:
    """As rocksdbCQSelectiveDoubleWriteEnable (5.5.1) writes them: the others are in files, and RocksDB need not have them."""
    changed(both, dict.fromkeys((pairs.end_key(QueueName(topic, number), True) for topic, number in QUEUES), None), "offset")
    changed(both, {pairs.end_key(QueueName(b"%LMQ%a", 0), True): pairs.end_value(1, -1)}, "offset")
    changed(both, {unit(QueueName(topic, number), offset): None for topic, number in QUEUES for offset in range(99)})
    summary = local_verify(both)
    assert (summary.exit, kinds(summary)) == (0, {})
    text = "RocksDB: 0 queues compared with the files; 4 queues in files alone, as rocksdbCQSelectiveDoubleWriteEnable has them"
    assert f"{text}; 1 queue in RocksDB alone, compared with the log" in summary.notes


def test_a_database_without_a_queue(both: Path) -> None:
    """As before the first start with a double write (tests/oracle shows that one): none is missed, none is lite."""
    changed(both, dict.fromkeys((pairs.end_key(QueueName(topic, number), True) for topic, number in QUEUES), None), "offset")
    changed(both, {unit(QueueName(topic, number), offset): None for topic, number in QUEUES for offset in range(99)})
    summary = local_verify(both)
    assert (summary.exit, kinds(summary)) == (0, {})
    told = [note for note in summary.notes if "RocksDB" in note]
    assert told[0].endswith("ConsumeQueue files are compared with the log: RocksDB has no queue yet")
    puts = (
        "4 queues in files alone: a broker with rocksdbCQDoubleWriteEnable puts units of the newest segments there as it starts"
    )
    assert told[1:] == [f"RocksDB: 0 queues compared with the files; {puts}"]


def test_the_newest_part_alone(both: Path) -> None:
    """As a broker leaves a database that it began beside files (tests/oracle): which of the two it reads, no file says."""
    there = list[tuple[int, bytes]]()
    for topic, number in QUEUES:
        paths = sorted((both / "consumequeue" / topic.decode() / str(number)).iterdir())
        units = struct.iter_unpack(">qiq", b"".join(path.read_bytes() for path in paths))
        named = (unit(QueueName(topic, number), offset) for offset in itertools.count())
        there += [(phy_offset, key) for (phy_offset, size, _), key in zip(units, named, strict=False) if size]
    old, new = sorted(there)[:40], sorted(there)[40:]
    changed(both, {key: None for _, key in old})
    summary = local_verify(both)
    assert (summary.exit, kinds(summary)) == (4, {"rocksdb-unit-missing": 40})
    told = [note for note in summary.notes if "combineCQPreferCQType=default it reads the files" in note]
    assert [f"from phy_offset {new[0][0]} on" in note for note in told] == [True]
    changed(both, {new[5][1]: None})
    assert not any("combineCQPreferCQType" in note for note in local_verify(both).notes)


def test_ends_that_are_lost(both: Path) -> None:
    """Units of other queues say that light queues are not all that there was."""
    changed(both, dict.fromkeys((pairs.end_key(QueueName(topic, number), True) for topic, number in QUEUES), None), "offset")
    changed(both, {pairs.end_key(QueueName(b"%LMQ%a", 0), True): pairs.end_value(1, -1)}, "offset")
    assert kinds(local_verify(both)) == {"rocksdb-unit-missing": 95}


def test_what_a_broken_database_of_topics_hides(both: Path) -> None:
    """Said once, with what verify cannot know then."""
    config_stores.write(both / "config" / "topics", config_stores.alone("B", {"topicName": "B"}, 5))
    assert not [note for note in local_verify(both).notes if "topics" in note]
    next((both / "config" / "topics").glob("MANIFEST-*")).write_bytes(b"broken")
    unread, hidden = (note for note in local_verify(both).notes if "topics" in note)
    assert unread.endswith(": the topics in it are not known")
    assert hidden.startswith("topics that cannot be read: batch queues are compared as plain ones: give --topics-config; lite ")
    # With --topics-config nothing is asked of it but the lite topics.
    named = VerifySettings(str(both), batch_topics=("B",), named=frozenset({"batch_topics"}))
    unread, hidden = (note for note in run_verify(named).notes if "config/topics" in note or note.startswith("topics that"))
    assert "RocksDB cannot read it" in unread
    assert hidden.startswith("topics that cannot be read: lite topics are known by the names of light queues alone")


# -------------------------------------------------------------------------------------------------------------------- questions


def test_asked_as_files_are(both: Path, alone: Path) -> None:
    """Every message of every queue, times, info, consumers and the data source: the same answers as of the files."""
    files = shutil.copytree(both, both.with_name("files"))
    for path in (files / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()
    (files / "config").mkdir()
    offsets = {"orders-0@audit": {"0": 3, "1": 99}, "orders-1@audit": {"0": 0}}
    (files / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    shutil.copytree(files / "config", alone / "config")
    rows = read_rows(ConsumeQueueSource, files)
    for row in rows:
        for store in (files, alone):
            found = rr.query(str(store), topic=row["topic"], queue=row["queueId"], offset=row["consumeQueueOffset"])
            assert [message.phy_offset for message in found.messages] == [row["commitLogOffset"]]
    for time in ("2023-11-14T22:15:00Z", "2023-11-14T22:17:30Z"):
        found, expected = (rr.query(str(store), topic="orders-1", queue=1, time=time) for store in (alone, files))
        assert [message.phy_offset for message in found.messages] == [message.phy_offset for message in expected.messages]
    assert rr.info(str(alone)).topics == rr.info(str(files)).topics
    assert [dataclasses.replace(row, source=None) for row in rr.consumers(str(alone)).groups] == [
        dataclasses.replace(row, source=None) for row in rr.consumers(str(files)).groups
    ]
    database = read_rows(ConsumeQueueSource, alone)
    assert [row | {"storeTimestamp": None, "storeTime": None} for row in database] == rows
    assert [row for row in read_rows(ConsumeQueueSource, both) if row["topic"]] == rows
    assert all(row["storeTimestamp"] for row in database)
    assert read_rows(ConsumeQueueSource, alone, topic="orders-1", queueId="0") == [
        row for row in database if (row["topic"], row["queueId"]) == ("orders-1", 0)
    ]


def test_rows_of_a_queue_of_two_ends(both: Path) -> None:
    """Of each queue those of the kind that goes further: store times tell RocksDB's."""
    queue, rows = ORDERS, read_rows(ConsumeQueueSource, both)
    path = both / "consumequeue" / "orders-0" / "0" / f"{0:020d}"
    whole = path.read_bytes()
    count = len([row for row in rows if (row["topic"], row["queueId"]) == ("orders-0", 0)])

    def read() -> tuple[int, set[tuple[str, int]]]:
        """How many rows, and the queues whose rows are RocksDB's."""
        found = read_rows(ConsumeQueueSource, both)
        keys = {(row["topic"], row["queueId"], row["consumeQueueOffset"]) for row in found}
        assert len(keys) == len(found)
        return len(found), {(row["topic"], row["queueId"]) for row in found if row["storeTimestamp"]}

    assert read() == (len(rows), set())
    # The files lack the last unit, or all of them; then RocksDB does, and at last a slot amid the files is empty.
    for data, end in ((whole[: 20 * (count - 1)], None), (bytes(len(whole)), None), (whole[:7], None), (whole, count - 2)):
        path.write_bytes(data)
        if end is not None:
            changed(both, {unit(queue, count - 1): None})
        assert read() == (len(rows), set() if end is not None else {("orders-0", 0)})
    path.write_bytes(whole[: 20 * (count - 2)] + bytes(20) + whole[20 * (count - 1) :])
    assert read() == (len(rows) - 1, set())


def test_rows_of_one_kind(both: Path, alone: Path) -> None:
    """By consumequeueType: the other kind of a queue, too. A kind that is not there is an error, not a table without rows."""
    changed(both, {unit(ORDERS, 3): None})
    (both / "consumequeue" / "orders-1" / "1" / f"{0:020d}").unlink()
    rows = {kind: read_rows(ConsumeQueueSource, both, consumequeueType=kind) for kind in ("both", "file", "rocksdb")}
    assert [bool(row["storeTimestamp"]) for row in rows["file"]] == [False] * len(rows["file"])
    assert all(row["storeTimestamp"] for row in rows["rocksdb"])
    last = [row for row in rows["rocksdb"] if (row["topic"], row["queueId"]) == ("orders-1", 1)]
    assert [len(rows[kind]) for kind in ("both", "file", "rocksdb")] == [95, 95 - len(last), 94]
    assert rows["both"] == [*rows["file"], *last]
    assert read_rows(ConsumeQueueSource, both) == rows["both"]
    with pytest.raises(UsageError, match="consumequeueType 'files': take both or file or rocksdb"):
        read_rows(ConsumeQueueSource, both, consumequeueType="files")
    assert read_rows(ConsumeQueueSource, alone, consumequeueType="rocksdb") == read_rows(ConsumeQueueSource, alone)
    with pytest.raises(InputError, match="has ConsumeQueues in RocksDB alone: leave out consumequeueType file"):
        read_rows(ConsumeQueueSource, alone, consumequeueType="file")
    for path in (both / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()
    assert read_rows(ConsumeQueueSource, both, consumequeueType="file") == rows["file"]
    with pytest.raises(InputError, match="has no ConsumeQueues in RocksDB: leave out consumequeueType rocksdb"):
        read_rows(ConsumeQueueSource, both, consumequeueType="rocksdb")


def test_a_queue_of_two_ends(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What goes further is read, and the difference is said."""
    queue = ORDERS
    end = QueueDatabase(str(both / "consumequeue")).last(queue)
    assert end is not None
    last = ["--topic", "orders-0", "--queue", "0", "--offset", str(end.queue_offset)]
    with (both / "consumequeue" / "orders-0" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(20 * end.queue_offset)
        file.write(bytes(20))
    assert query([str(both), *last]) == 0
    told = f"orders-0/0: ends at {end.queue_offset} in its files, at {end.queue_offset + 1} in RocksDB: {both}/consumequeue: "
    assert f"{told}orders-0/0 is read" in capsys.readouterr().err
    changed(both, {pairs.end_key(queue, True): None}, "offset")
    assert query([str(both), *last]) == 0
    assert "orders-0/0: has the offsets 0 to 31" in capsys.readouterr().err


def test_a_folder_of_their_own(alone: Path) -> None:
    """With useSeparateStorePathForRocksdbCQ (5.5)."""
    (alone / "consumequeue").rename(alone / "consumequeue_rocksdb")
    assert local_verify(alone).exit == 0
    assert len(read_rows(ConsumeQueueSource, alone)) == 95
    assert len(rr.query(str(alone), topic="orders-0", queue=0, offset=2).messages) == 1


def test_inspect(alone: Path) -> None:
    """Topics, queues, units and the check point of a database; with records each queue. Nothing in it changes."""
    folder = alone / "consumequeue"
    before = state(folder)
    found = rr.inspect(folder, records=True)
    assert (found.kind, found["checkPoint"], found["topics"], found["queues"], found["findings"]) == (
        "rocksdb",
        22160,
        2,
        4,
        [],
    )
    rows = list(found.records)
    assert [(row["topic"].encode(), row["queueId"]) for row in rows] == QUEUES
    assert sum(row["units"] for row in rows) == found["units"] == 95
    assert all(row["end"] == row["lastOffset"] and row["firstOffset"] == row["missing"] == 0 for row in rows)
    assert list(found.records) == rows
    assert state(folder) == before
    assert "checkPoint" in found.to_dict()


def test_inspect_a_spoilt_database(alone: Path) -> None:
    """What is wrong in it has a code, how many queues have it, and the first of them."""
    other, third, fourth = (QueueName(*queue) for queue in QUEUES[1:])
    changed(alone, {unit(ORDERS, 4): None, unit(other, 20): None})
    changed(
        alone,
        {
            pairs.CHECKPOINT_KEY: None, pairs.end_key(third, is_max=True): None,
            pairs.end_key(fourth, is_max=True): pairs.end_value(7, 3),
        },
        "offset",
    )  # fmt: skip
    found = rr.inspect(alone / "consumequeue")
    assert {finding["code"]: finding["count"] for finding in found["findings"]} == {
        "no-check-point": 1, "end-missing": 1, "end-without-unit": 2, "units-behind-end": 1, "gap": 1,
    }  # fmt: skip
    assert found["checkPoint"] is None
    assert any("such as orders-0/0" in finding["text"] for finding in found["findings"])


def test_inspect_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file"):
        rr.inspect(tmp_path)
