"""A store whose broker did not stop cleanly gets a new index and checkpoint, or that alone: its next start loses no message."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from tests.serving.programs import Program
from tests.serving.stores import SIZES, ask, build_into, keyed_log, keys_of, lost, options, queues_of, wrong
from tests.tools.local_engine import local_build
from tests.tools.log_writer import Put

RECORDS = 1500
FLUSHED = 1100
"""records whose units were on the disk when the machine died; the rest fills more than a segment"""
PARTS = [("index", "checkpoint"), ("checkpoint",), ("consumequeue", "checkpoint"), ("consumequeue", "index", "checkpoint")]


def crashed(store: Path, puts: list[Put], version: str) -> None:
    """As a power failure leaves it: queues lack their last units, and the checkpoint knows so."""
    build_into(store, broker_version=version)
    for (topic, queue), of_queue in queues_of(puts).items():
        kept = sum(put in puts[:FLUSHED] for put in of_queue) * 20
        for path in sorted((store / "consumequeue" / topic / str(queue)).iterdir()):
            data = path.read_bytes()
            there = max(0, min(len(data), kept - int(path.name)))
            path.write_bytes(data[:there].ljust(len(data), b"\0"))
            if not there and int(path.name):
                path.unlink()
    last = puts[-1].message.store_timestamp
    old = Checkpoint(last, puts[FLUSHED - 1].message.store_timestamp, last)
    (store / "checkpoint").write_bytes(old.to_bytes())
    (store / "abort").touch()


@pytest.mark.parametrize("version", ["5.5.1", pytest.param("4.9.8", marks=pytest.mark.slow)])
def test_no_message_is_lost(version: str, seed: int, tmp_path: Path) -> None:
    base = tmp_path / "base"
    puts = keyed_log(base, RECORDS, seed)
    crashed(base, puts, version[:3])
    keys, due = keys_of(puts), {queue: [put.offset for put in of_queue] for queue, of_queue in queues_of(puts).items()}
    stores = {"old checkpoint": (), "newest checkpoint": (), **{",".join(parts): parts for parts in PARTS}, "none": PARTS[0]}
    for name, parts in stores.items():
        store = tmp_path / name
        shutil.copytree(base, store)
        if name == "none":
            (store / "checkpoint").unlink()
        if name == "newest checkpoint":
            newest = puts[-1].message.store_timestamp
            (store / "checkpoint").write_bytes(Checkpoint(newest, newest, newest).to_bytes())
        if parts:
            if "index" in parts:
                shutil.rmtree(store / "index")
            build_into(store, only=parts, broker_version=version[:3])
    with Program(version, "Crash", tmp_path) as program:
        for name in stores:
            program.step("open", name, tmp_path / name, *options())
            answers = program.step("serve", name, *(word for queue in due for word in queue)).split(" ")
            served = {queue: [int(place) for place in line.split(",")] for queue, line in zip(due, answers, strict=True)}
            if name == "newest checkpoint":
                count = sum(len({*served[queue]} & {*places}) for queue, places in due.items())
                print(f"{version}: with a checkpoint that vouches for lost units it serves {count} of {RECORDS} messages")
                assert count < RECORDS
                continue
            assert served == due, name
            found = ask(program, name, keys, tmp_path)
            assert (lost(keys, found), wrong(keys, found)) == ([], []), name


def test_it_is_said(seed: int, tmp_path: Path) -> None:
    """The fields are the old checkpoint's where these are lower; what is not there, or nonsense, counts as 0."""
    puts = keyed_log(tmp_path / "store", 200, seed)
    store, first, newest = tmp_path / "store", puts[0].message.store_timestamp, puts[-1].message.store_timestamp
    sizes: dict[str, Any] = dict(SIZES, broker_version="5.5")
    last = puts[-1].offset
    whole = Checkpoint(newest, newest, newest, 0, last, last)

    def built(name: str, *only: str) -> tuple[Checkpoint, list[str]]:
        summary = local_build(store, tmp_path / name, only=only, **sizes)
        assert summary.exit == 0
        return Checkpoint.from_bytes((tmp_path / name / "checkpoint").read_bytes()), summary.warnings

    assert built("clean", "index", "checkpoint") == (whole, [])
    (store / "abort").touch()
    found, (warning,) = built("no checkpoint", "index", "checkpoint")
    assert found == Checkpoint(0, 0, newest, 0, last)
    assert "has a file abort, so consumequeue may lack what the broker had not written" in warning
    early = puts[9].offset
    (store / "checkpoint").write_bytes(Checkpoint(newest + 7, first, first, 0, 0, early).to_bytes())
    assert built("old", "index", "checkpoint")[0] == Checkpoint(newest, first, newest, 0, last, early)
    assert built("alone", "checkpoint")[0] == Checkpoint(newest, first, first, 0, last, early)
    assert built("all", "consumequeue", "index", "checkpoint") == (whole, [])
    (store / "checkpoint").write_bytes(Checkpoint(-5, first).to_bytes()[:9])
    assert built("torn", "index", "checkpoint")[0] == Checkpoint(0, 0, newest, 0, last)
    # With accelerated recovery 5.5 does not load a first field without a sixth: Checkpoint.loadable.
    (store / "checkpoint").write_bytes(Checkpoint(newest, first, first).to_bytes())
    assert built("older", "index", "checkpoint")[0] == Checkpoint(0, first, newest, 0, last)
