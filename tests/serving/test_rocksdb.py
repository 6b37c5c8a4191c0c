"""ConsumeQueues in RocksDB and a real broker: the files that it leaves, and what it makes of a database that was built."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from tests.oracle.test_rocksdb_built import light_log, pairs_in
from tests.serving import stores
from tests.serving.broker import Broker, by_pulls, by_queue
from tests.serving.programs import PATIENCE, Program
from tests.serving.stores import build_into, keyed_log, options, queues_of
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify

SIZES: dict[str, Any] = dict(stores.SIZES)


def test_real_files(seed: int, tmp_path: Path) -> None:
    """With rocksdbCQDoubleWriteEnable a store has both kinds; a start with storeType=default passes over RocksDB's files."""
    puts = keyed_log(tmp_path / "plain", 60, seed, topics=1, queues=1)
    (due,) = ([put.offset for put in of_queue] for of_queue in queues_of(puts).values())
    build_into(tmp_path / "plain")
    for name in ("both", "separate"):
        shutil.copytree(tmp_path / "plain", tmp_path / name)
    with Program("5.5.1", "Crash", tmp_path) as program:
        for name, more in (("plain", ""), ("both", ""), ("separate", ",useSeparateStorePathForRocksdbCQ=true")):
            double = f"rocksdbCQDoubleWriteEnable=true{more}" if name != "plain" else "storeType=default"
            program.step("open", name, tmp_path / name, *options(), "--set", double)
        program.step("close", "plain", "both", "separate")
        assert (tmp_path / "plain" / "rocksdbstore" / "CURRENT").exists()
        assert rocksdb_queues(str(tmp_path / "plain")) is None
        for name, folder in (("both", "consumequeue"), ("separate", "consumequeue_rocksdb")):
            found = rocksdb_queues(str(tmp_path / name))
            assert found is not None, name
            assert (found.folder, found.beside) == (str(tmp_path / name / folder), True)
            files = {path.name for path in (tmp_path / name / folder).iterdir() if path.is_file()}
            assert files - set(found.names) <= {"LOCK"}
            assert {"CURRENT", "IDENTITY"} <= set(found.names)
        program.step("open", "again", tmp_path / "both", *options())
        assert program.step("serve", "again", "orders-0", 0) == ",".join(map(str, due))


APART = re.compile(b"\x01min\x01".hex() + "|" + b"CHECKPOINT_TOPIC".hex())
"""in the keys of the first ends of queues, and of the check point"""


def test_lite_topics_with_the_selective_double_write(tmp_path: Path) -> None:
    """5.5.1: RocksDB has the queues of lite topics, and the light ones, which have no files. Verify and a build follow."""
    store, out = tmp_path / "store", tmp_path / "out"
    light_log(store)
    config: dict[str, dict[str, Any]] = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in ("plain", "lite")
    }
    config["lite"]["attributes"] = {"message.type": "LITE"}
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": config}))
    setting = f"{BOTH},rocksdbCQSelectiveDoubleWriteEnable=true"
    words = ("--enable-lmq", "--set", f"{setting},enableMultiDispatch=true")
    with Program("5.5.1", "Serve", tmp_path) as program, Broker(program, "lite", store, tmp_path, *words) as broker:
        broker.send(("lite", 0), "new", 3)
        broker.send(("plain", 0), "new", 3)
        while program.step("state").split(" ")[1] != "0":
            time.sleep(0.1)
        broker.close()
    real = pairs_in(store / "consumequeue")
    with contextlib.closing(QueueDatabase(str(store / "consumequeue"))) as database:
        assert set(database.topics()) == {b"lite", b"%LMQ%$lite$a", b"%LMQ%$lite$b"}
    assert {path.name for path in (store / "consumequeue").iterdir() if path.is_dir()} == {"lite", "plain"}
    for lmq in (False, True):
        verified = local_verify(store, lmq=lmq, **SIZES)
        assert kinds(verified) == {}
        assert any("in files alone, as rocksdbCQSelectiveDoubleWriteEnable has them" in note for note in verified.notes)
        assert "light queues have no files: those in RocksDB are compared with the log" in verified.notes
    (tmp_path / "broker.conf").write_text(setting.replace(",", "\n"))
    settings = parse_settings([str(store), "--out", str(out), "--broker-conf", str(tmp_path / "broker.conf"), "--lmq"])
    taken = {name: getattr(settings, name) for name in ("consumequeue_type", "rocksdb_light", "rocksdb", "lmq")}
    built = local_build(store, out, checkpoint="broker", **taken, **SIZES)
    assert built.exit == 0
    assert "1 lite topic in config/: all units of their records are in RocksDB, too" in built.notes
    # A broker writes a queue's first end when it is asked for it, and its check point with what goes into RocksDB.
    ours, theirs = ([pair for pair in pairs if not APART.search(pair)] for pairs in (pairs_in(out / "consumequeue"), real))
    assert ours == theirs
    assert len(ours) == 33 + 40 + 3
    assert fetch([str(out), "--to", str(store)]) == 0
    assert kinds(local_verify(store, **SIZES)) == {}


BOTH = "rocksdbCQDoubleWriteEnable=true,combineCQUseRocksdbForLmq=true"
"""A broker of 5.5.1 does not start on the first one alone: its lite service wants light queues in RocksDB."""
FROM_ROCKSDB = f"{BOTH},combineCQPreferCQType=defaultRocksDB"


@pytest.mark.parametrize("setting", ["storeType=defaultRocksDB", BOTH, FROM_ROCKSDB], ids=["rocksdb", "both", "from-rocksdb"])
def test_a_broker_on_what_was_built(setting: str, seed: int, tmp_path: Path) -> None:
    """A broker, its topics and its clients (5.5.1): consumers get all, in order, and then what producers send."""
    store, kind = tmp_path / "store", "both" if "Double" in setting else "rocksdb"
    puts = keyed_log(store, 600, seed)
    built = local_build(store, tmp_path / "out", consumequeue_type=kind, write_topics=True, broker_version="5.5", **SIZES)
    assert built.exit == 0
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    due = {
        queue: [(put.queue_offset, put.offset) for put in of_queue] for queue, of_queue in queues_of(puts).items()
    }  # fmt: skip
    with Program("5.5.1", "Serve", tmp_path) as program, Broker(program, "built", store, tmp_path, "--set", setting) as broker:
        assert by_pulls(broker.pulls()) == due
        pushed = by_queue(broker.consumed("push", len(puts)))
        assert {queue: sorted(messages) for queue, messages in pushed.items()} == due
        queue = min(due)
        times = [put.message.store_timestamp for put in queues_of(puts)[queue]]
        assert broker.offset_at(queue, times[len(times) // 2]) == len(times) // 2
        for place in broker.send(queue, "new", 20):
            due[queue].append((due[queue][-1][0] + 1, place))
        until = time.monotonic() + PATIENCE
        while by_pulls(broker.pulls()) != due and time.monotonic() < until:
            time.sleep(0.1)
        assert by_pulls(broker.pulls()) == due
        # A broker takes away what it knows no topic of, ten seconds behind its start: these are known.
        if kind == "rocksdb":
            time.sleep(12)
            assert by_pulls(broker.pulls()) == due
