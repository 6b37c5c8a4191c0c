"""``python -m tests.preflight.database_sweep``: spoilt stores of brokers with storeType=defaultRocksDB, predicted and started.

    python -m tests.preflight.database_sweep [--count 300] [--seed S] [--version 5.3.3,5.4.0,5.5.0,5.5.1] [--both]

Exit status 0: every statement holds; 1: some do not, each told with the seed of its store.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rocketmq_reindex.udfs.queue_database import QueueDatabase
from tests.preflight import spoil_database, spoil_log, spoil_queues, spoil_rest
from tests.preflight.bases import Base, complete, random_base
from tests.preflight.compare import Comparison, Outcome, compare, compare_database
from tests.preflight.disk import Disk, Queue, read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import ROCKSDB_LIFETIME, RealStores
from tests.preflight.seeds import based
from tests.preflight.settings import Conf, Sizes, random_flags
from tests.preflight.spoil import Deed, Spoilt, befall
from tests.preflight.sweep import PER_BASE, Judged, Sweep, end_of, last_bytes

VERSIONS = ("5.3.3", "5.4.0", "5.5.0", "5.5.1")
ROCKSDB = {"storeType": "defaultRocksDB"}
KINDS: Sequence[tuple[float, Sequence[Deed]]] = (
    (4.0, spoil_database.LOST), (3.0, spoil_database.DAMAGED), (2.5, spoil_log.DAMAGED), (2.0, spoil_log.SEGMENTS),
    (1.0, spoil_rest.CHECKPOINT), (1.0, spoil_rest.INDEX),
)  # fmt: skip


BOTH = {"rocksdbCQDoubleWriteEnable": "true"}
OF_BOTH: Sequence[tuple[float, Sequence[Deed]]] = (
    (2.0, spoil_database.LOST), (2.0, spoil_database.DAMAGED), (1.5, spoil_queues.LOST), (1.5, spoil_queues.DAMAGED),
    (1.5, spoil_log.DAMAGED), (1.5, spoil_log.SEGMENTS), (1.0, spoil_rest.CHECKPOINT), (0.5, spoil_rest.INDEX),
)  # fmt: skip


def make_base(real: RealStores, path: Path, seed: int) -> Base:
    """A store of a broker with RocksDB, all of whose log is dispatched."""
    sizes = random_base(real.release, path, seed)
    complete(real, path, sizes, ROCKSDB | {"recheckReputOffsetFromCq": "true"})
    return Base(path, sizes)


def base_of_both(real: RealStores, path: Path, seed: int) -> Base:
    """A store of a broker with both kinds of queues, all of whose log is dispatched."""
    sizes = random_base(real.release, path, seed)
    complete(real, path, sizes, BOTH)
    return Base(path, sizes)


def spoil(path: Path, sizes: Sizes, seed: int, both: bool = False) -> Spoilt:
    """Spoil the store in ``path``; one seed, the same deeds."""
    rng = random.Random(seed)
    told, abnormal = befall(path, sizes, rng, OF_BOTH if both else KINDS)
    preferred = {"combineCQPreferCQType": rng.choice(("default", "default", "defaultRocksDB"))}
    flags = random_flags(rng)
    if both:
        flags.pop("enableAcceleratedRecovery", None)
    conf = Conf(sizes, flags | (BOTH | preferred if both else ROCKSDB))
    return Spoilt(path, conf, told, abnormal)


def ends_in(store: Path) -> dict[Queue, int]:
    """The max offset of each queue in the database of a store; 0 for one that has none."""
    if not spoil_database.is_there(store):
        return {}
    database, found = QueueDatabase(str(spoil_database.folder_of(store))), dict[Queue, int]()
    for end in database.ends():
        name = end.queue.topic.decode(), end.queue.queue_id
        found[name] = end.queue_offset + 1 if end.is_max else found.get(name, 0)
    database.close()
    return found


def judged(real: RealStores, scratch: Path, seed: int, count: int, both: bool = False) -> Iterator[Judged]:
    """The stores of the seeds from ``seed`` on."""
    make = base_of_both if both else make_base
    for number, base in based(make, real, scratch, range(seed, seed + count), PER_BASE):
        store = scratch / str(number)
        shutil.copytree(base.path, store)
        spoilt = spoil(store, base.sizes, number, both)
        said, outcome, comparison = start_copy(real, store, spoilt.conf, scratch)
        yield Judged(number, spoilt, comparison, outcome.told.loads, said if isinstance(said, str) else "")


def start_copy(
    real: RealStores, store: Path, conf: Conf, scratch: Path
) -> tuple[dict[str, Any] | str, Outcome, Comparison | None]:
    """Predict the start of a store, start it, and compare; the store is gone then. A comparison needs a prediction."""
    said = predict(store, real.release, conf, scratch)
    before, queues = read_disk(store, conf.sizes.hash_slots), ends_in(store)
    abnormal, in_files = (store / "abort").exists(), conf.more.get("combineCQPreferCQType") == "default"
    log = read_log(store / "commitlog", real.release, conf.flag("checkCRCOnRecover", True))
    last = last_bytes(store)
    told = real.start(store, conf)
    if told.loads and not in_files:
        told = real.look(store, sorted({*queues, *((record.topic, record.queue) for record in log)}))
    after = read_disk(store, conf.sizes.hash_slots)
    served = {
        queue: {one.min_offset + at: (place, 1, 0) for at, place in enumerate(one.served) if place >= 0}
        for queue, one in (told.queues or {}).items()
    }
    if told.loads:
        real.leave(store)
    shutil.rmtree(store, ignore_errors=True)
    end, filler = end_of(last, told.max_offset)
    if not in_files:
        before, after = replace(before, units={queue: {} for queue in queues}), Disk(after.segments, served, after.items)
    outcome = Outcome(
        real.release, abnormal, told, before, after, log, end, filler, conf.flag("messageIndexEnable", True),
        conf.flag("recheckReputOffsetFromCq", False),
    )  # fmt: skip
    if isinstance(said, str):
        return said, outcome, None
    return said, outcome, compare(said, outcome) if in_files else compare_database(said, outcome, queues)


SWEEP = Sweep("database_sweep", 300, VERSIONS, judged, ROCKSDB_LIFETIME)
OF_BOTH_SWEEP = Sweep(
    "of brokers with rocksdbCQDoubleWriteEnable (5.4.0 on)", 300, VERSIONS[1:], partial(judged, both=True), ROCKSDB_LIFETIME
)

if __name__ == "__main__":
    sys.exit(SWEEP.main(__doc__, more={"both": OF_BOTH_SWEEP}))
