"""``repair --to-plain`` beside the real store: random logs of DLedger, and what plain stores make of the new log."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.golden.stores import read_files
from tests.golden.test_to_plain import rows_of, table_of
from tests.oracle.first_difference import first_difference
from tests.oracle.scenarios import FOLDER, java_home
from tests.preflight.dledger_sweep import dledger
from tests.preflight.real import ROCKSDB_LIFETIME, RealStores
from tests.preflight.settings import Conf, Sizes
from tests.tools.local_engine import InlineEngine, local_repair

SIZES = Sizes(segment=8192, cq_file=400, hash_slots=50, index_items=100)
WORDS = ["--segment-size", "8192", "--cq-file-size", "400", "--hash-slots", "50", "--index-items", "100"]
BUILT = {"cq_file_size": 400, "hash_slots": 50, "index_items": 100}
PUTS = 25
UNITS = (0, 8)
"""the kinds of transaction, of SYSFLAG, that get a unit"""


def run(version: str, *words: object) -> None:
    command = [str(FOLDER / "run"), version, *map(str, words)]
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr


def dledger_store(version: str, store: Path, rng: random.Random) -> None:
    """A store of one node, in half of all cases behind an old plain log."""
    if rng.random() < 0.5:
        run(version, "DLedgerStore", store, "--put", rng.randrange(5, 60), "--plain", "--seed", rng.randrange(1000), *WORDS)
    run(version, "DLedgerStore", store, "--put", rng.randrange(40, 160), "--seed", rng.randrange(1000), *WORDS)


@pytest.mark.random
@pytest.mark.parametrize(
    ("version", "plain"),
    [
        ("4.9.8", "4.9.8"),
        pytest.param("4.9.8", "5.5.1", marks=pytest.mark.slow),
        pytest.param("4.9.8", "5.3.3", marks=pytest.mark.slow),
        pytest.param("5.3.3", "5.3.3", marks=pytest.mark.slow),
        ("5.3.3", "5.5.1"),
    ],
)
def test_the_real_store_goes_on(version: str, plain: str, seed: int, tmp_path: Path) -> None:
    """What it derives from the new log are our bytes; it serves each message at its queue offset, and takes more."""
    rng = random.Random(seed)
    store, out = tmp_path / "store", tmp_path / "out"
    dledger_store(version, store, rng)
    size = rng.choice((0, rng.randrange(700, 9000)))
    told = local_repair(
        store, out, InlineEngine(rng.randrange(1, 6), rng.randrange(1, 4)), to_plain=True, range_size=size,
        broker_version=plain[:3], queue_order="broker", checkpoint="broker", **BUILT,
    )  # fmt: skip
    assert (told.exit, told.error, told.damage) == (0, None, [])
    assert rows_of(out) == rows_of(store)

    real, made = tmp_path / "real", read_files(out)
    run(plain, "Rebuild", out, "--out", real, "--copy", *WORDS)
    rebuilt = {
        name: data for name, data in read_files(real).items() if not name.startswith("consumequeue/") or data.strip(b"\0")
    }
    assert first_difference(rebuilt, made, SIZES.hash_slots) is None

    rows = rr.messages(out).read_all().to_pylist()
    with_unit = [row for row in rows if row["sysFlag"] & 0xC in UNITS]
    assert table_of(out)["commitLogOffset"].to_pylist() == [row["commitLogOffset"] for row in rows]
    with RealStores(plain, tmp_path / "scratch") as stores:
        served = tmp_path / "served"
        shutil.copytree(out, served)
        conf = Conf(SIZES)
        for more in (PUTS, 0):
            started = stores.start(served, conf)
            assert (started.loads, started.behind, started.min_offset) == (True, 0, 0), started.reason
            assert started.queues is not None
            for row in with_unit:
                queue = started.queues[row["topic"], row["queueId"]]
                assert queue.served[row["consumeQueueOffset"] - queue.min_offset] == row["commitLogOffset"]
            ends = {name: queue.max_offset for name, queue in started.queues.items()}
            if more:
                names = sorted(name for name in ends if len(name[0].encode()) < 100 and not name[0].startswith("SCHEDULE"))
                puts = stores.put(served, seed, more, [*rng.sample(names, min(4, len(names))), ("Fresh", 0)])
                for put in puts:
                    if put.sysflag & 0xC in UNITS:
                        ends[put.topic, put.queue] = max(ends.get((put.topic, put.queue), 0), put.queue_offset + 1)
                looked = stores.look(served)
                assert looked.queues is not None
                assert {name: queue.max_offset for name, queue in looked.queues.items()} == ends
                assert min(put.offset for put in puts) >= rows[-1]["commitLogOffset"]
                stores.close(served)


def served_by(real: RealStores, store: Path, queues: list[tuple[str, int]], **more: str) -> dict[tuple[str, int], list[int]]:
    """Where each message lies that a real store serves, by queue, when it has started under these settings."""
    told = real.start(store, Conf(SIZES, more))
    assert (told.loads, told.behind) == (True, 0), told.reason
    looked = real.look(store, queues)
    real.leave(store)
    assert looked.queues is not None
    return {name: list(queue.served) for name, queue in looked.queues.items() if queue.max_offset > 0}


def test_queues_in_rocksdb(tmp_path: Path) -> None:
    """A node whose queues are in RocksDB leaves to files, to RocksDB or to both: each broker serves all of it."""
    rocksdb, queues = {"storeType": "defaultRocksDB"}, [("TopicA", 0), ("TopicB", 1)]
    with RealStores("5.3.3", tmp_path / "scratch", ROCKSDB_LIFETIME) as real:
        store, outs = tmp_path / "store", {}
        assert real.start(store, Conf(SIZES, dledger() | rocksdb)).loads
        real.put(store, 5, 60, queues)
        assert real.look(store, queues).behind == 0
        real.close(store)
        rows = rr.messages(store).read_all().to_pylist()
        guarded = local_repair(store, tmp_path / "unnamed", InlineEngine(5, 3), to_plain=True, broker_version="5.3", **BUILT)
        assert guarded.exit == 0, guarded.error
        assert any("--consumequeue-type rocksdb" in text for text in guarded.warnings), guarded.warnings
        for kind in ("file", "rocksdb", "both"):
            outs[kind] = tmp_path / kind
            told = local_repair(
                store, outs[kind], InlineEngine(5, 3), to_plain=True, broker_version="5.3", consumequeue_type=kind,
                named=frozenset({*BUILT, "broker_version", "consumequeue_type"}), **BUILT,
            )  # fmt: skip
            assert (told.exit, told.error) == (0, None)
        moved = rr.messages(outs["file"]).read_all().to_pylist()
        assert len(moved) == len(rows)
        with_unit = [row for row in moved if row["sysFlag"] & 0xC in UNITS]
        names = sorted({(row["topic"], row["queueId"]) for row in with_unit})
        expected = {
            name: [row["commitLogOffset"] for row in with_unit if (row["topic"], row["queueId"]) == name] for name in names
        }
        assert served_by(real, outs["file"], names) == expected
        assert served_by(real, outs["rocksdb"], names, **rocksdb) == expected
        assert served_by(real, outs["both"], names) == expected


@pytest.mark.parametrize("plain", ["5.3.3", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_a_store_with_controller_mode_starts_on_it(plain: str, tmp_path: Path) -> None:
    """The store alone, without a controller: with AutoSwitchHAService it loads the new log, and has all of it."""
    store, out = tmp_path / "store", tmp_path / "out"
    run("5.3.3", "DLedgerStore", store, "--put", 60, "--seed", 3, *WORDS)
    told = local_repair(store, out, InlineEngine(2, 2), to_plain=True, broker_version=plain[:3], **BUILT)
    assert (told.exit, told.error) == (0, None)
    assert not (out / "epochFileCheckpoint").exists()
    rows = [row for row in rr.messages(out).read_all().to_pylist() if row["sysFlag"] & 0xC in UNITS]
    with RealStores(plain, tmp_path / "scratch") as real:
        found = served_by(real, out, [], enableControllerMode="true")
    assert sorted(place for places in found.values() for place in places) == [row["commitLogOffset"] for row in rows]
