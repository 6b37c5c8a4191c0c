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
from tests.preflight.real import RealStores
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
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=300, check=False)
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
