"""ConsumeQueues in RocksDB, beside the brokers that write them: random stores of 5.3.3, 5.5.0 and 5.5.1."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.storage_format.layouts import rocksdb_files
from tests.oracle.scenarios import FOLDER, java_home
from tests.serving.programs import Program
from tests.serving.stores import keyed_log, options, queues_of
from tests.tools.local_verify import kinds, local_verify

SETTINGS = {
    "5.3.3": ("storeType=defaultRocksDB",),
    "5.5.0": ("storeType=defaultRocksDB", "rocksdbCQDoubleWriteEnable=true"),
    "5.5.1": (
        "storeType=defaultRocksDB",
        "rocksdbCQDoubleWriteEnable=true",
        "rocksdbCQDoubleWriteEnable=true,useSeparateStorePathForRocksdbCQ=true",
    ),
}
FIRST = {"queue-unit-missing": 1, "index-item-missing": 4, "index-tag-missing": 1}
"""What a start with an empty database passes over: the record at offset 0."""


def pairs_of(version: str, folder: Path, out: Path) -> list[str]:
    """All pairs as that release's jar reads them."""
    command = [str(FOLDER / "run"), version, "Pairs", str(folder), str(out)]
    ran = subprocess.run(command, env=java_home(), capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    return out.read_text().splitlines()


@pytest.mark.parametrize("version", SETTINGS)
def test_random_stores(version: str, seed: int, tmp_path: Path) -> None:
    """All pairs are read, verify has the broker's word, and each message is found where the broker serves it."""
    rng = random.Random(seed)
    puts = keyed_log(tmp_path / "log", rng.randrange(200, 900), seed, topics=3, queues=3)
    queues = sorted(queues_of(puts))
    served: dict[Path, list[str]] = {}
    with Program(version, "Crash", tmp_path) as program:
        stores = {setting: tmp_path / f"store-{number}" for number, setting in enumerate(SETTINGS[version])}
        for setting, store in stores.items():
            shutil.copytree(tmp_path / "log", store)
            program.step("open", store.name, store, *options(), "--set", setting)
            for prefix in ("a", "b"):
                program.step("put", store.name, "orders-1", prefix, rng.randrange(1, 40))
            # The broker runs: what it has in memory alone is not seen, and it goes on as if nobody had looked.
            live = store / ("consumequeue_rocksdb" if "Separate" in setting else "consumequeue")
            for _ in range(3):
                with Database(str(live)) as database:
                    list(database.pairs("default"))
            assert {path.name for path in live.iterdir() if path.is_file()} <= {*rocksdb_files(os.listdir(live)), "LOCK"}
            newest = program.step("put", store.name, "orders-1", "c", 3).split(",")[-1]
            words = [str(word) for queue in queues for word in queue]
            # RocksDB gets units in order behind the dispatch, in a thread of its own.
            ends = time.monotonic() + 60
            while True:
                served[store] = program.step("serve", store.name, *words).split(" ")
                if any(newest in places.split(",") for places in served[store]):
                    break
                assert time.monotonic() < ends, "the broker does not serve what was put last"
                time.sleep(0.1)
        program.step("close", *[store.name for store in stores.values()])
    for setting, store in stores.items():
        folder = store / ("consumequeue_rocksdb" if "Separate" in setting else "consumequeue")
        with Database(str(folder)) as database:
            ours = [
                f"{name}\t{key.hex()}\t{value.hex()}" for name in ("default", "offset") for key, value in database.pairs(name)
            ]
        assert ours == pairs_of(version, folder, tmp_path / "pairs.txt")
        for topic in (store / "consumequeue").iterdir():
            if topic.is_dir():
                shutil.rmtree(topic)
        summary = local_verify(store)
        lost = kinds(summary)
        assert summary.database_queues == len(queues)
        assert lost in ({}, FIRST, {kind: count for kind, count in FIRST.items() if "tag" not in kind}), summary.to_text()
        assert bool(lost) == setting.startswith("storeType")
        for (name, number), places in zip(queues, served[store], strict=True):
            expected = [int(place) for place in places.split(",")]
            found = rr.query(str(store), topic=name, queue=number, offset=0, max=2000).messages
            assert [message.phy_offset for message in found] == expected
