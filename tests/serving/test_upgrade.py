"""Built for one version and started by another, with and without crashes, and with enableAcceleratedRecovery (5.5)."""

from __future__ import annotations

import time
from pathlib import Path

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.serving.crashes import MORE, TOPIC, Store, copied, crash, due_of
from tests.serving.programs import Program
from tests.serving.stores import ask, build_into, keyed_log, lost

OLD = 600
TAIL = 60
"""records in the last segment, where there is room for what is put"""
RUNS = ("5.5.1", "5.3.3", "4.9.8", "5.5.1")
ACCELERATED = ("enableAcceleratedRecovery=true",)


def checkpoint(store: Store) -> Checkpoint:
    return Checkpoint.from_bytes((store.path / "checkpoint").read_bytes())


def test_upgrades_and_downgrades_lose_nothing(seed: int, tmp_path: Path) -> None:
    """Each run adds records and ends by kill -9, or by a clean stop: every message is served, every key is found.

    What was built as 5.3 has no tag items; what was built as 5.5 has them, which older brokers pass over.
    """
    log = tmp_path / "log"
    due = due_of(keyed_log(log, OLD, seed, tail=TAIL))
    crashing, stopping = [], []
    for built_as in ("4.9", "5.3", "5.5"):
        stores = copied(log, tmp_path, due, f"crashing-{built_as}", f"stopping-{built_as}")
        for store in stores:
            build_into(store.path, broker_version=built_as)
            store.settings = ("flushIntervalConsumeQueue=100",)
        crashing.append(stores[0])
        stopping += stores[1:] if built_as == "5.3" else []
    for run, version in enumerate(RUNS):
        with Program(version, "Crash", tmp_path) as program:
            for store in (*crashing, *stopping):
                store.open(program)
                store.is_whole(program, tmp_path, f"in run {run}, by {version}", by_tag=run == 0 and store.name.endswith("5.5"))
                store.add(program, f"run{run}")
            program.step("close", *(store.name for store in stopping))
            program.kill()
        crash(*crashing)


def test_accelerated_recovery(seed: int, tmp_path: Path) -> None:
    """A crash costs nothing that was built as 5.5. After it a store of an older version does not load, as may be 5.5's own.

    The start deletes the IndexFile that was not full, and passes over the records before the checkpoint's sixth field: their
    keys are lost on every store.
    """
    log = tmp_path / "log"
    due = due_of(keyed_log(log, OLD, seed, tail=TAIL))
    idle, busy, old, plain, own = stores = copied(log, tmp_path, due, "idle", "busy", "old", "plain", "own")
    for store, built_as in ((idle, "5.5"), (busy, "5.5"), (old, "5.3"), (plain, "5.3")):
        build_into(store.path, broker_version=built_as)
        store.settings = ACCELERATED if store is not plain else ()
    busy.settings = (*ACCELERATED, "flushIntervalConsumeQueue=50", "flushConsumeQueueThoroughInterval=50")
    own.settings = (*ACCELERATED, "flushIntervalConsumeQueue=600000")
    with Program("5.5.1", "Crash", tmp_path) as program:
        for store in stores:
            store.open(program)
            store.is_whole(program, tmp_path, "as it was built", by_tag=store is not plain and store is not old)
        for store in (busy, own, plain):
            store.add(program, "first")
            program.step("flush", store.name)
        while checkpoint(busy).logics_offset < max(busy.due.queues[TOPIC, 0]):
            time.sleep(0.05)
        program.kill()
    crash(*stores)
    assert checkpoint(own).physic > checkpoint(own).logics_offset == 0
    with Program("5.5.1", "Crash", tmp_path) as program:
        for store in (idle, plain):
            store.open(program)
            store.is_whole(program, tmp_path, "after kill -9", by_tag=store is idle)
        busy.open(program)
        assert busy.served(program) == OLD + MORE
        missing = lost(busy.due.keys, ask(program, busy.name, busy.due.keys, tmp_path))
        print(f"with accelerated recovery a crash costs {len(missing)} of {2 * MORE} keys that were put before it")
        assert missing
        assert not due.keys.keys() & set(missing)
        for store in (old, own):
            assert not store.loads(program), store.name
    # Advice for the upgrade: a checkpoint of the new version, or the old one and no acceleration until it was stopped once.
    (old.path / "abort").touch()
    build_into(old.path, only=("checkpoint",), broker_version="5.5", overwrite=True)
    with Program("5.5.1", "Crash", tmp_path) as program:
        old.open(program)
        old.is_whole(program, tmp_path, "with a new checkpoint", by_tag=False)
