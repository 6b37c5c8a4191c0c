"""A slave that stops at damage for ever goes on when its log is repaired: a real master and a real slave (5.3.3)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex
from tests.serving.broker import write_topics
from tests.serving.ha_wire import HaWire
from tests.serving.replication import Served, caught_up, due_of, log_of, master_on, slave_on, stopped, taken
from tests.serving.stores import SEGMENT, SIZES, build_into, keyed_log
from tests.tools.log_writer import Put

RECORDS, MORE = 900, 20
QUEUE = ("orders-0", 0)
OPTIONS: dict[str, Any] = SIZES | {"engine": "local", "master": "local[1]", "broker_version": "5.3"}
HEAD = 60
"""Bytes of a record's head that are spoilt: its sizes, its magic code and its place are among them."""


def group(folder: Path, seed: int) -> tuple[Path, Path, list[Put]]:
    """A master's store, that of a slave which has its first segment so far, and the records of the master's log."""
    master, slave = folder / "master", folder / "slave"
    puts = keyed_log(master, RECORDS, seed)
    (slave / "commitlog").mkdir(parents=True)
    shutil.copy(master / "commitlog" / f"{0:020d}", slave / "commitlog")
    for store in (master, slave):
        build_into(store)
        write_topics(store, puts)
    return master, slave, puts


def victim(puts: list[Put], seed: int) -> Put:
    """A record in the middle of the second segment."""
    return random.Random(seed).choice([put for put in puts if SEGMENT * 5 // 4 < put.offset < SEGMENT * 7 // 4])


def added(due: Served, places: list[int]) -> None:
    first = due[QUEUE][-1][0] + 1
    due[QUEUE] += list(zip(range(first, first + len(places)), places, strict=True))


def below(due: Served, end: int) -> Served:
    return {queue: [pair for pair in pairs if pair[1] < end] for queue, pairs in due.items()}


def without(lost: Put | None, due: Served) -> Served:
    """Who reads across the offset of a lost message gets the next one twice."""
    if lost is None:
        return due
    assert isinstance(lost.message.topic, str)
    queue, at = (lost.message.topic, lost.message.queue_id), lost.queue_offset
    return due | {queue: [*due[queue][:at], due[queue][at + 1], *due[queue][at + 1 :]]}


@pytest.mark.slow
def test_bytes_spoilt_on_the_way_to_the_slave(seed: int, tmp_path: Path) -> None:
    master_store, slave_store, puts = group(tmp_path, seed)
    due, bad = due_of(puts), victim(puts, seed)
    spoilt = {bad.offset: random.Random(seed).randbytes(HEAD)}
    with master_on(master_store) as master, HaWire(master.ha_port, spoilt) as wire:
        with slave_on(slave_store, wire.port) as slave:
            assert stopped(slave, master.ends[1]) == bad.offset
            # The log goes on growing; what is dispatched stands still.
            added(due, master.broker.send(QUEUE, "meanwhile", MORE))
            assert stopped(slave, master.ends[1]) == bad.offset
            assert slave.served() == below(due, bad.offset)
            end = slave.ends[1]
        wire.spoils = False

        whole, filled = tmp_path / "whole", tmp_path / "filled"
        for out, replica, status in ((whole, master_store, 0), (filled, None, 3)):
            assert rocketmq_reindex.repair(slave_store, out=out, replica=replica, **OPTIONS).exit_status == status
        of_master, of_slave, of_filled = log_of(master_store), log_of(slave_store), log_of(filled)
        assert log_of(whole)[:end] == of_master[:end] != of_slave[:end]
        after = bad.offset + bad.size
        assert of_filled[: bad.offset] == of_slave[: bad.offset]
        assert of_filled[after:] == of_slave[after:]

        for out, lost in ((whole, None), (filled, bad)):
            with slave_on(taken(out, slave_store, tmp_path / f"slave-{out.name}"), wire.port) as slave:
                added(due, master.broker.send(QUEUE, out.name, MORE))
                caught_up(slave, master.ends[1])
                assert slave.served() == without(lost, due)
        assert master.served() == due


@pytest.mark.slow
def test_damage_of_the_master(seed: int, tmp_path: Path) -> None:
    """Its own dispatch passed those bytes when they were sound. A slave's start cuts its log there, and they come again."""
    master_store, slave_store, puts = group(tmp_path, seed)
    due, bad = due_of(puts), victim(puts, seed)
    with (master_store / "commitlog" / f"{SEGMENT:020d}").open("r+b") as segment:
        segment.seek(bad.offset - SEGMENT)
        segment.write(random.Random(seed).randbytes(HEAD))
    with master_on(master_store) as master:
        for session in ("first", "second"):
            with slave_on(slave_store, master.ha_port) as slave:
                added(due, master.broker.send(QUEUE, session, MORE))
                assert stopped(slave, master.ends[1]) == bad.offset
                assert slave.served() == below(due, bad.offset)
        end = master.ends[1]

    repaired = []
    for store in (master_store, slave_store):
        out = tmp_path / f"{store.name}-repaired"
        assert rocketmq_reindex.repair(store, out=out, **OPTIONS).exit_status == 3
        repaired.append((log_of(out), taken(out, store, tmp_path / f"new-{store.name}")))
    (of_master, master_store), (of_slave, slave_store) = repaired
    assert of_master[:end] == of_slave[:end]
    with master_on(master_store) as master, slave_on(slave_store, master.ha_port) as slave:
        added(due, master.broker.send(QUEUE, "repaired", MORE))
        caught_up(slave, master.ends[1])
        assert slave.served() == master.served() == without(bad, due)
