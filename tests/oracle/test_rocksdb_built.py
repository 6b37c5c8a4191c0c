"""ConsumeQueues in RocksDB that a build wrote, beside real stores of 5.3.3, 5.5.0 and 5.5.1: the same pairs, and served.

Each store has a JVM of its own: 5.5.1 dies of a compaction (SIGSEGV) where two stores with RocksDB stop in one.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.udfs.queue_database import QueueDatabase, QueueName
from tests.oracle.test_rocksdb_queues import pairs_of
from tests.serving import stores as serving
from tests.serving.programs import PATIENCE, Program
from tests.serving.stores import SEGMENT, Queue, keyed_log, options, queues_of
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

SIZES: dict[str, Any] = dict(serving.SIZES)
ROCKSDB, BOTH = "storeType=defaultRocksDB", "rocksdbCQDoubleWriteEnable=true"
FROM_ROCKSDB = f"{BOTH},combineCQPreferCQType=defaultRocksDB,combineAssignOffsetCQType=defaultRocksDB"
VERSIONS = ("5.3.3", "5.5.0", "5.5.1")
FEW = ("5.5.1", *(pytest.param(version, marks=pytest.mark.slow) for version in ("5.3.3", "5.5.0")))
WITH_BOTH = {
    "5.5.0": (BOTH, FROM_ROCKSDB),
    "5.5.1": (BOTH, FROM_ROCKSDB, f"{BOTH},rocksdbCQSelectiveDoubleWriteEnable=true"),
}
"""by version: ConsumeQueue files assign the offsets, and are read; RocksDB does, and is; 5.5.1 has light queues in RocksDB"""
END = b"\x01max\x01".hex()
"""in the keys of queues' ends"""
SERVED = [(version, setting) for version in VERSIONS for setting in (ROCKSDB, *WITH_BOTH.get(version, ()))]


def put_into(store: Path, out: Path, **settings: Any) -> None:
    """Build, and fetch the result into the store, which verify then finds in order."""
    line = {"broker_version": "5.5"} | settings
    built = local_build(store, out, **(SIZES | line))
    assert (built.exit, built.error) == (0, None)
    assert fetch([str(out), "--to", str(store), "--partial"]) == 0
    if "until_offset" not in settings:
        assert kinds(local_verify(store, lmq=settings.get("lmq", False), **SIZES)) == {}


def pairs_in(folder: Path) -> list[str]:
    with Database(str(folder)) as database:
        return [f"{name}\t{key.hex()}\t{value.hex()}" for name in ("default", "offset") for key, value in database.pairs(name)]


def words(queues: list[Queue]) -> list[str]:
    return [str(word) for queue in queues for word in queue]


def light_log(store: Path) -> dict[str, list[Put]]:
    """A log of a topic and two light queues of it, beside one without; the records of each by its name."""
    of_queue: dict[str, list[Put]] = {"plain": [], "lite": [], "%LMQ%$lite$a": [], "%LMQ%$lite$b": []}
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(60):
            names = ["%LMQ%$lite$a", *(["%LMQ%$lite$b"] if number % 3 == 0 else [])] if number % 2 else []
            topic = "lite" if names else "plain"
            offsets = ",".join(str(len(of_queue[name])) for name in names)
            light = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": offsets} if names else {}
            writer.append(Message(topic=topic, queue_offset=number // 2, properties={"KEYS": f"key-{number}", **light}))
            for name in (topic, *names):
                of_queue[name].append(writer.puts[-1])
    return of_queue


@pytest.mark.parametrize("version", FEW)
def test_light_queues(version: str, tmp_path: Path) -> None:
    """Pairs of a broker that fills its database from the log, but for the record at offset 0; and served from ours."""
    of_queue = light_log(tmp_path / "real")
    light_log(tmp_path / "ours")
    put_into(tmp_path / "ours", tmp_path / "out", consumequeue_type="rocksdb", lmq=True, checkpoint="broker")
    queues = [(name, 0) for name in of_queue]
    due = [",".join(str(put.offset) for put in puts) for puts in of_queue.values()]
    ours = pairs_in(tmp_path / "ours" / "consumequeue")
    for name, first in (("real", 1), ("ours", 0)):
        with Program(version, "Crash", tmp_path) as program:
            program.step("open", name, tmp_path / name, *options(), "--enable-lmq", "--set", ROCKSDB)
            assert program.step("serve", name, *words(queues)).split(" ")[first:] == due[first:]
            program.step("close", name)
    real = pairs_of(version, tmp_path / "real" / "consumequeue", tmp_path / "real.txt")
    assert len([pair for pair in ours if pair not in real]) == 2
    assert len([pair for pair in real if pair not in ours]) == 1
    assert len(ours) == 60 + 40 + 9


def until(done: Callable[[], bool], waited: str) -> None:
    """Wait for what RocksDB does in a thread of its own; ``waited`` says what it was where it does not come."""
    patience = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < patience, f"after {PATIENCE} s: {waited}"
        time.sleep(0.05)


def put_more(program: Program, store: str, topic: str, prefix: str, count: int) -> str:
    """Put records into queue 0, and wait until it ends behind them: RocksDB gets units in a thread of its own."""
    end = int(program.step("end", store, topic)) + count
    told = program.step("put", store, topic, prefix, count)
    until(lambda: program.step("end", store, topic) == str(end), f"queue 0 of {topic} does not end at {end}")
    return told


def places(puts: list[Put], queues: list[Queue]) -> list[str]:
    of_queue = queues_of(puts)
    return [",".join(str(put.offset) for put in of_queue[queue]) for queue in queues]


@pytest.mark.parametrize("version", VERSIONS)
def test_pairs_of_its_own_store(version: str, seed: int, tmp_path: Path) -> None:
    """All pairs of both families, to the byte: of a store that a broker wrote, and that was asked for each queue's begin."""
    rng, store = random.Random(seed), tmp_path / "store"
    store.mkdir()
    topics = ["a", "orders-1", "thème", "x" * 40]
    with Program(version, "Crash", tmp_path) as program:
        program.step("open", "real", store, *options(), "--set", ROCKSDB)
        for number in range(12):
            put_more(program, "real", rng.choice(topics), f"key-{number}", rng.randrange(1, 60))
        for topic in topics:
            put_more(program, "real", topic, "last", 1)
        program.step("serve", "real", *words([(topic, 0) for topic in topics]))
        program.step("close", "real")
    real = pairs_of(version, store / "consumequeue", tmp_path / "real.txt")
    built = local_build(store, tmp_path / "out", consumequeue_type="rocksdb", checkpoint="broker", **SIZES)
    assert built.exit == 0, built.error
    assert pairs_of(version, tmp_path / "out" / "consumequeue", tmp_path / "ours.txt") == real
    assert pairs_in(tmp_path / "out" / "consumequeue") == real


@pytest.mark.parametrize(("version", "setting"), SERVED)
def test_served_and_back_to_files(version: str, setting: str, seed: int, tmp_path: Path) -> None:
    """A store that lost its queues: in RocksDB alone, or both kinds, then in files: all messages, and new ones."""
    rng, store = random.Random(seed), tmp_path / "store"
    puts = keyed_log(store, rng.randrange(300, 900), seed, topics=3, queues=3)
    queues = sorted(queues_of(puts))
    due = places(puts, queues)
    new = queues.index(("orders-1", 0))
    kind = "rocksdb" if setting == ROCKSDB else "both"
    put_into(store, tmp_path / "out", consumequeue_type=kind, rocksdb_light="Selective" in setting)
    with Program(version, "Crash", tmp_path) as program:
        for turn in ("first", "second"):
            program.step("open", "store", store, *options(), "--set", setting)
            assert program.step("serve", "store", *words(queues)).split(" ") == due
            due[new] += "," + put_more(program, "store", "orders-1", turn, 5)
            assert program.step("serve", "store", *words(queues)).split(" ") == due
            program.step("close", "store")
        assert kinds(local_verify(store, **SIZES)) == {}
        # Back to files: the database goes out of the way, and a build takes its place.
        out = tmp_path / "files"
        assert local_build(store, out, consumequeue_type="file", expired_queues="keep", **SIZES).exit == 0
        (store / "consumequeue").rename(store / "consumequeue.rocksdb")
        assert fetch([str(out), "--to", str(store)]) == 0
        program.step("open", "store", store, *options())
        assert program.step("serve", "store", *words(queues)).split(" ") == due


def expiring(store: Path) -> list[Put]:
    """A log whose first segment has all of the topic ``gone``."""
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(300):
            topic = "gone" if number < 120 else "on"
            offset = number if topic == "gone" else number - 120
            writer.append(Message(topic=topic, queue_offset=offset, body=bytes(300), properties={"KEYS": f"key-{number}"}))
    return writer.puts


@pytest.mark.parametrize("version", FEW)
def test_ends_of_expired_queues(version: str, tmp_path: Path) -> None:
    """A queue without a record in the log any more goes on where it ended, from files to RocksDB, to both, and back."""
    puts = expiring(tmp_path / "store")
    store = tmp_path / "store"
    assert puts[120].offset < SEGMENT < puts[-1].offset
    put_into(store, tmp_path / "first", consumequeue_type="file")
    (store / "commitlog" / f"{0:020d}").unlink()
    settings = [
        ("rocksdb", ROCKSDB),
        *(("both", setting) for setting in WITH_BOTH.get(version, ())),
        ("file", "storeType=default"),
    ]
    end, left = 120, ",".join(str(put.offset) for put in puts if put.offset >= SEGMENT)
    for number, (kind, setting) in enumerate(settings):
        out, one, light = tmp_path / f"out-{number}", tmp_path / f"one-{number}", "Selective" in setting
        built = local_build(store, out, consumequeue_type=kind, expired_queues="keep", rocksdb_light=light, **SIZES)
        assert built.exit == 0, built.error
        if kind == "file":
            (store / "consumequeue").rename(store / "consumequeue.rocksdb")
        assert fetch([str(out), "--to", str(store)]) == 0
        assert kinds(local_verify(store, **SIZES)) == {}
        shutil.copytree(store, one)
        with Program(version, "Crash", tmp_path) as program:
            program.step("open", "one", one, *options(), "--set", setting)
            assert program.step("end", "one", "gone") == str(end), setting
            assert program.step("serve", "one", "gone", 0, "on", 0).split(" ") == ["-", left], setting
            place = put_more(program, "one", "gone", "more", 1)
            assert program.step("end", "one", "gone") == str(end + 1), setting
            assert program.step("serve", "one", "gone", 0) == place, setting


@pytest.mark.parametrize("version", FEW)
def test_a_build_of_a_part_of_the_log(version: str, seed: int, tmp_path: Path) -> None:
    """A start makes units of the rest. By the broker's own check point it passes over the record that begins right there."""
    puts = keyed_log(tmp_path / "log", 200, seed, topics=2, queues=2)
    queues = sorted(queues_of(puts))
    until = puts[150].offset
    for checkpoint in ("safe", "broker"):
        store, out = tmp_path / checkpoint, tmp_path / f"{checkpoint}-out"
        shutil.copytree(tmp_path / "log", store)
        put_into(store, out, consumequeue_type="rocksdb", checkpoint=checkpoint, until_offset=until)
        with Program(version, "Crash", tmp_path) as program:
            program.step("open", checkpoint, store, *options(), "--set", ROCKSDB)
            # A gap ends a consumer's pull with a NullPointerException (5.5.0), so nothing is asked of the other one.
            if checkpoint == "safe":
                assert program.step("serve", checkpoint, *words(queues)).split(" ") == places(puts, queues)
            program.step("close", checkpoint)
    database = QueueDatabase(str(tmp_path / "broker" / "consumequeue"))
    lost = puts[150]
    assert database.value(QueueName(str(lost.message.topic).encode(), lost.message.queue_id), lost.queue_offset) is None
    database.close()


@pytest.mark.parametrize("version", ["5.5.1", pytest.param("5.5.0", marks=pytest.mark.slow)])
def test_a_database_without_a_queue_gets_units_of_the_newest_segments(version: str, seed: int, tmp_path: Path) -> None:
    """What verify says of it, and that all is served, from the files."""
    store = tmp_path / "store"
    puts = keyed_log(store, 1500, seed, topics=2, queues=2)
    queues = sorted(queues_of(puts))
    due = places(puts, queues)
    put_into(store, tmp_path / "out")
    folder = store / "consumequeue"
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    database.create_column_family("offset", rocksdict.Options(raw_mode=True))
    database.close()
    (folder / "rocksdict-config.json").unlink()
    told = local_verify(store, **SIZES)
    assert kinds(told) == {}
    assert any("RocksDB has no queue yet" in note for note in told.notes)
    with Program(version, "Crash", tmp_path) as program:
        program.step("open", "real", store, *options(), "--set", BOTH)
        for k, (topic, number) in enumerate(queues):
            due[k] += f",{put_more(program, 'real', topic, 'new', 5)}" if number == 0 else ""
        assert program.step("serve", "real", *words(queues)).split(" ") == due
        program.step("close", "real")
    with contextlib.closing(QueueDatabase(str(folder))) as in_rocksdb:
        at = {
            (queue, offset): int(place)
            for queue, of_queue in zip(queues, due, strict=True)
            for offset, place in enumerate(of_queue.split(","))
        }
        there = {
            (queue, offset)
            for queue, offset in at
            if in_rocksdb.value(QueueName(queue[0].encode(), queue[1]), offset) is not None
        }
    begin = min(at[key] for key in there) // SEGMENT * SEGMENT
    assert begin > 0
    assert there == {key for key, place in at.items() if place >= begin}
    told = local_verify(store, **SIZES)
    assert kinds(told) == {"rocksdb-unit-missing": len(at) - len(there)}
    assert any("with combineCQPreferCQType=default it reads the files, and nothing is lost" in note for note in told.notes)


def mixed_log(store: Path) -> None:
    """Records of a lite topic and of a plain one, which name the same light queues, and others."""
    ends: dict[str, int] = {}
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(120):
            topic = "lite" if number % 4 in (1, 2) else "plain"
            names = [name for name, every in (("%LMQ%$lite$a", 2), ("%LMQ%odd", 3), ("%LMQ%$lite$b", 5)) if not number % every]
            offsets = ",".join(str(ends.get(name, 0)) for name in names)
            light = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": offsets} if names else {}
            properties = {"KEYS": f"key-{number}", **light}
            writer.append(Message(topic=topic, queue_offset=ends.get(topic, 0), properties=properties))
            ends |= {name: ends.get(name, 0) + 1 for name in (topic, *names)}
    attributes = {"lite": {"message.type": "LITE"}, "plain": {}}
    table = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "attributes": of_topic}
        for name, of_topic in attributes.items()
    }
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def with_ends_of(real: list[str], pairs: list[str]) -> list[str]:
    """The pairs, with ends of queues at phy_offset 0 where the real ones are there.

    CombineConsumeQueueStore.verifyAndInitOffsetForAllStore asks RocksDB for each queue's end while a thread of RocksDB's store
    still writes the units of the start. A queue that it finds behind gets its end anew, by queue_offset alone, and by chance
    after that thread has written the last record's place.
    """
    nowhere = "00" * 8
    at_0 = {key for key, _, value in (pair.rpartition("\t") for pair in real) if END in key and value.startswith(nowhere)}
    parts = [pair.rpartition("\t") for pair in pairs]
    return [f"{key}\t{nowhere}{value[16:]}" if key in at_0 else f"{key}\t{value}" for key, _, value in parts]


def test_the_selective_double_write_asks_the_record_for_its_topic(tmp_path: Path) -> None:
    """5.5.1: all units of a lite record are in RocksDB, whatever the queues are called; those of others are in files alone."""
    store, out, setting = tmp_path / "store", tmp_path / "out", f"{BOTH},rocksdbCQSelectiveDoubleWriteEnable=true"
    mixed_log(store)
    with Program("5.5.1", "Crash", tmp_path) as program:
        program.step("open", "real", store, *options(), "--enable-lmq", "--set", f"{setting},enableMultiDispatch=true")
        queues = [("lite", 0), ("%LMQ%$lite$a", 0), ("%LMQ%odd", 0), ("plain", 0)]
        until(lambda: "-" not in program.step("serve", "real", *words(queues)).split(" "), "a queue has no message yet")
        program.step("close", "real")
    real = pairs_in(store / "consumequeue")
    # The units of plain records stand in files of the light queues, between those of lite ones.
    assert kinds(local_verify(store, lmq=True, **SIZES)) == {}
    built = local_build(store, out, consumequeue_type="both", rocksdb_light=True, lmq=True, broker_version="5.5", **SIZES)
    assert built.exit == 0, built.error
    apart = re.compile(b"\x01min\x01".hex() + "|" + b"CHECKPOINT_TOPIC".hex())
    ours, theirs = ([pair for pair in pairs if not apart.search(pair)] for pairs in (pairs_in(out / "consumequeue"), real))
    assert with_ends_of(theirs, ours) == theirs
    assert len(ours) == 60 + 30 + 20 + 12 + 4
    assert queue_files_of(out) == queue_files_of(store)


@pytest.mark.parametrize("cq_ext", ["none", "plain"])
def test_light_queues_that_are_in_rocksdb_alone(cq_ext: str, tmp_path: Path) -> None:
    """With combineCQUseRocksdbForLmq a broker of 5.5.1 makes no files of light queues. A build follows its broker.conf."""
    store, out, ext = tmp_path / "store", tmp_path / "out", f",enableConsumeQueueExt={str(cq_ext == 'plain').lower()}"
    light_log(store)
    setting = f"{BOTH},combineCQUseRocksdbForLmq=true,enableMultiDispatch=true"
    with Program("5.5.1", "Crash", tmp_path) as program:
        program.step("open", "real", store, *options(), "--enable-lmq", "--set", f"{setting}{ext}")
        program.step("serve", "real", "plain", 0)
        program.step("close", "real")
    (tmp_path / "broker.conf").write_text(f"{setting},enableLmq=true".replace(",", "\n"))
    settings = parse_settings([str(store), "--out", str(out), "--broker-conf", str(tmp_path / "broker.conf"), "--lmq"])
    taken = {name: getattr(settings, name) for name in ("consumequeue_type", "rocksdb_lmq", "lmq")}
    built = local_build(store, out, cq_ext=cq_ext, broker_version="5.5", **taken, **SIZES)
    assert built.exit == 0, built.error
    assert "light queues have no files, as with combineCQUseRocksdbForLmq=true" in built.notes
    assert queue_files_of(out) == queue_files_of(store)
    with contextlib.closing(QueueDatabase(str(out / "consumequeue"))) as database:
        assert {topic.decode() for topic in database.topics()} == {"plain", "lite", "%LMQ%$lite$a", "%LMQ%$lite$b"}
    # A kind that is given wins, and a note says what such a broker has.
    both = local_build(store, tmp_path / "both", consumequeue_type="both", lmq=True, broker_version="5.5", **SIZES)
    assert any("has them in RocksDB alone" in note for note in both.notes)
    assert {path.split("/")[0] for path in queue_files_of(tmp_path / "both")} == {
        "plain",
        "lite",
        "%LMQ%$lite$a",
        "%LMQ%$lite$b",
    }


def queue_files_of(store: Path) -> dict[str, bytes]:
    """The ConsumeQueue files of a store, without the zeros that end them."""
    folder = store / "consumequeue"
    paths = (path for path in folder.rglob("*") if path.is_file() and path.parent != folder)
    return {str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0") for path in paths}
