"""Stores of brokers with storeType=defaultRocksDB: what a preflight says of a start is what the real store then does.

``python -m tests.preflight.database_sweep`` has many more of them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from tests.preflight.database_sweep import ROCKSDB, VERSIONS, ends_in, judged, start_copy
from tests.preflight.predicted import predict
from tests.preflight.real import ROCKSDB_LIFETIME, RealStart, RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.spoil_database import changed, folder_of
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

SEED = 5000
COUNT = 8
SIZES = Sizes(segment=16_000, cq_file=2000, hash_slots=50, index_items=2000)
CONF = Conf(SIZES, ROCKSDB)
RECORDS = 81
QUEUE = ("TopicA", 0)


@pytest.mark.parametrize("version", [VERSIONS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[1:])])
def test_spoilt_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path, ROCKSDB_LIFETIME) as real:
        found = list(judged(real, tmp_path, SEED, COUNT))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.comparison is not None and one.loads for one in found) >= COUNT // 2


@dataclass
class World:
    """A real store, and what is tried with copies of one that it wrote: one queue, all of whose records are dispatched."""

    real: RealStores
    base: Path
    puts: list[Put]
    scratch: Path

    def start(self, name: str, conf: Conf = CONF) -> tuple[dict[str, Any], RealStart]:
        """Predict and start a copy that was made under ``name``: both agree."""
        said, outcome, comparison = start_copy(self.real, self.scratch / name, conf, self.scratch)
        assert comparison is not None, said
        assert comparison.differences == []
        assert isinstance(said, dict)
        return said, outcome.told

    def copy(self, name: str) -> Path:
        store = self.scratch / name
        shutil.copytree(self.base, store)
        return store


@pytest.fixture(params=[pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"], scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    scratch = tmp_path_factory.mktemp("rocksdb")
    base = scratch / "base"
    with LogWriter(base / "commitlog", SIZES.segment) as writer:
        for number in range(RECORDS):
            writer.append(Message(topic=QUEUE[0], queue_id=0, properties={"KEYS": f"key-{number}"}, body=bytes(300)))
        puts = writer.puts
    with RealStores(request.param, scratch, ROCKSDB_LIFETIME) as real:
        told = real.start(base, CONF.with_(recheckReputOffsetFromCq="true"))
        assert told.loads
        assert len(told.queues or {}) == 0
        assert len((real.look(base, [QUEUE]).queues or {})[QUEUE].served) == RECORDS
        real.close(base)
        yield World(real, base, puts, scratch)


def kinds(said: dict[str, Any]) -> dict[str, int]:
    """The losses but for those of the index, which lacks the record at offset 0: who looks again does not index it."""
    return {loss["kind"]: loss["count"] for loss in said["losses"] if not loss["kind"].startswith("index")}


def the_queue(said: dict[str, Any]) -> dict[str, Any]:
    (queue,) = said["queues"]
    return dict(queue)


def test_a_lost_database(world: World) -> None:
    """A clean start passes over the record at offset 0, for good; one after a crash does not, nor does one that looks again."""
    for name, abort, conf, lost in (
        ("clean", False, CONF, 1), ("crash", True, CONF, 0), ("recheck", False, CONF.with_(recheckReputOffsetFromCq="true"), 0),
    ):  # fmt: skip
        store = world.copy(f"lost-{name}")
        shutil.rmtree(folder_of(store))
        shutil.rmtree(store / "index")
        if abort:
            (store / "abort").touch()
        said, told = world.start(store.name, conf)
        assert kinds(said).get("records-hidden", 0) == lost
        assert the_queue(said)["min_offset"] == lost
        assert told.queues is not None
        assert len(told.queues[QUEUE].served) == RECORDS - lost


def test_an_older_database(world: World) -> None:
    """The record at the check point is passed over: its queue has a gap that no consumer gets past, until the broker looks
    again."""
    stop = world.puts[50]
    for name, conf, gap in (("older", CONF, 50), ("older-recheck", CONF.with_(recheckReputOffsetFromCq="true"), -1)):
        store, queue = world.copy(name), QueueName(QUEUE[0].encode(), 0)
        prefix = pairs.unit_prefix(queue)
        changed(
            folder_of(store), {pairs.unit_key(prefix, at): None for at in range(50, RECORDS)},
            {
                pairs.CHECKPOINT_KEY: stop.offset.to_bytes(8, "big"),
                pairs.end_key(queue, is_max=True): pairs.end_value(world.puts[49].offset, 49),
            },
        )  # fmt: skip
        assert ends_in(store) == {QUEUE: 50}
        said, _ = world.start(name, conf)
        assert the_queue(said)["gap_at"] == gap
        assert kinds(said) == ({"records-hidden": 1, "rocksdb-gap": 1} if gap >= 0 else {})


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "older"])
@pytest.mark.usefixtures("inline_local")
def test_the_advised_build_ends_it(lost: bool, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The other way of the advice than to look again: a build of the database, and a fetch. The real start hides nothing."""
    name = f"advised-{lost}"
    store, out, conf = world.copy(name), world.scratch / f"{name}.built", world.scratch / f"{name}.conf"
    if lost:
        shutil.rmtree(folder_of(store))
    else:
        prefix = pairs.unit_prefix(QueueName(QUEUE[0].encode(), 0))
        changed(folder_of(store), {pairs.unit_key(prefix, 50): None}, {})
    conf.write_text("\n".join(CONF.words()))
    said = predict(store, world.real.release, CONF, world.scratch)
    assert isinstance(said, dict)
    advised = [text for loss in said["losses"] for text in loss["advice"] if text.startswith("build with --consumequeue-type")]
    assert advised, said["losses"]
    assert "build with --consumequeue-type rocksdb, and fetch that" in advised[0]
    words = ["build", store, "--broker-conf", conf, "--consumequeue-type", "rocksdb", "--engine", "local", "--out", out]
    version = ["--broker-version", ".".join(world.real.release.split(".")[:2])]
    assert main([str(word) for word in (*words, *version)]) == 0, capsys.readouterr().err
    assert main(["fetch", str(out), "--to", str(store)]) == 0, capsys.readouterr().err
    said, told = world.start(name, CONF)
    assert said["losses"] == []
    assert told.queues is not None
    assert list(told.queues[QUEUE].served) == [put.offset for put in world.puts]


@pytest.mark.parametrize("at", [35, 40])
def test_a_log_that_ends_earlier(world: World, at: int) -> None:
    """The queue is cut where the log ends; if that is at the unit that RocketMQ's search tries first, down to one message."""
    store = world.copy(f"cut-{at}")
    first = int(sorted(path.name for path in (store / "commitlog").iterdir())[world.puts[at].offset // SIZES.segment])
    for path in (store / "commitlog").iterdir():
        if int(path.name) > first:
            path.unlink()
    path = store / "commitlog" / f"{first:020d}"
    path.write_bytes(path.read_bytes()[: world.puts[at].offset - first].ljust(SIZES.segment, b"\0"))
    said, told = world.start(store.name)
    kept = 1 if at == (RECORDS - 1) // 2 else at
    assert told.queues is not None
    assert len(told.queues[QUEUE].served) == kept == the_queue(said)["max_offset"]
    assert kinds(said) == ({"records-hidden": at - 1} if kept == 1 else {})
    assert the_queue(said)["units_cut"] == RECORDS - kept


def test_a_database_where_the_broker_does_not_look(world: World) -> None:
    """5.5 does not start on it; 5.3 has one place alone."""
    store = world.copy("elsewhere")
    shutil.copytree(folder_of(store), store / "consumequeue_rocksdb")
    said, told = world.start(store.name)
    assert said["loads"] == told.loads == (world.real.release == "5.3.3")
    if not told.loads:
        assert kinds(said) == {"rocksdb-two-places": 1}
