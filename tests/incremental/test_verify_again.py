"""verify --incremental: the differences of a full verify, from what earlier verifies read and what is new."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.errors import InputError
from tests.golden.stores import unpack
from tests.incremental.verify_world import Growing, again, known, told
from tests.tools.batch_log import SIZES as BATCH_SIZES
from tests.tools.compare import SMALL
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases
from tests.tools.spoil_derived import KINDS
from tests.tools.spoiling import NotHere
from tests.tools.spoilt_stores import make_store, spoilt

STORES = 2
SPOILS = 4


@pytest.mark.parametrize("number", range(STORES))
def test_the_same_differences_as_a_full_verify(number: int, seed: int, tmp_path: Path) -> None:
    """Of random stores, each spoilt again and again, in its log too; buckets and partitions change from run to run."""
    rng = random.Random(seed + number)
    sound = make_store(tmp_path / "sound", rng.randrange(2**31), rng.choice(("safe", "broker")))
    store, tables = tmp_path / "store", tmp_path / "tables"
    sizes = {"range_size": rng.choice((1 << 13, 3001, 1 << 14))} | SMALL
    shutil.copytree(sound, store)
    first = again(store, tables, **sizes)
    assert known(first)[0] == 0
    assert told(first) == told(local_verify(store, **sizes))
    tried = 0
    for name in rng.sample(sorted(KINDS), len(KINDS)):
        try:
            spoilt(sound, store, name, rng.randrange(2**31))
        except NotHere:
            continue
        engine = InlineEngine(rng.randrange(1, 9), rng.randrange(1, 4))
        full, found = local_verify(store, **sizes), again(store, tables, engine, **sizes)
        assert told(found) == told(full), name
        tried += 1
        if tried == cases(SPOILS, 1):
            return


def test_batch_queues(tmp_path: Path) -> None:
    source, store = unpack("batch-5.3", tmp_path).path, tmp_path / "store"
    for part in ("commitlog", "config"):
        shutil.copytree(source / part, store / part)
    shutil.copytree(source / "rebuilt", store, dirs_exist_ok=True)
    sizes: dict[str, Any] = dict(BATCH_SIZES)
    again(store, tmp_path / "tables", InlineEngine(7, 3), **sizes)
    path = store / "batchconsumequeue" / "BatchA" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[46 * 3 + 7] ^= 1
    path.write_bytes(data)
    found = again(store, tmp_path / "tables", InlineEngine(4, 2), **sizes)
    assert known(found)[0] == known(found)[1] > 0
    assert kinds(found) == {"queue-unit-no-record": 1}
    assert told(found) == told(local_verify(store, **sizes))


def test_only_what_is_new_is_read(growing: Growing) -> None:
    first = growing.verify()
    size = sum(path.stat().st_size for path in growing.log.iterdir())
    assert known(first) == (0, 4)
    assert first.incremental is not None
    assert first.incremental["bytes_read"] >= size - (1 << 14)
    assert "none of 4 ranges: no verify with these settings and this version has scanned them" in first.to_text()
    # Else the line would say, unexplained, that more was read than is there.
    for more, says in ((0, False), (4096, True)):
        read = {**first.incremental, "bytes_read": first.bytes + more}
        assert (" bytes (some pages twice), " in replace(first, incremental=read).to_text()) == says
    same = growing.verify()
    assert known(same) == (4, 4)
    assert same.incremental is not None
    assert same.incremental["bytes_read"] <= 4 * 5 * 4096
    assert "known    4 of 4 ranges, as an earlier verify scanned them" in same.to_text()
    growing.grow(90)
    found = growing.verify()
    assert known(found) == (3, 6)
    assert kinds(found) == {}
    assert found.records == found.units == 290
    # Another version, other settings: the log is read anew.
    assert known(growing.verify(crc="all")) == (0, 6)
    assert known(growing.verify()) == (6, 6)


def test_a_range_that_changed_is_scanned_again(growing: Growing) -> None:
    growing.verify()
    path = sorted(growing.log.iterdir())[2]
    data = bytearray(path.read_bytes())
    data[5000:5004] = b"\xff" * 4
    path.write_bytes(data)
    found = growing.verify()
    assert known(found) == (3, 4)
    assert "log-damage" in kinds(found)
    assert told(found) == told(local_verify(growing.folder / "out", commitlogs=(str(growing.log),), **SMALL))


def test_what_is_trusted_and_what_recheck_reads(tmp_path: Path) -> None:
    """A byte apart from the pages that are looked at, with the old time: as the page on hourly runs says."""
    store, tables = tmp_path / "store", tmp_path / "tables"
    with LogWriter(store / "commitlog", 1 << 18) as writer:
        for number in range(700):
            writer.append(Message("T", queue_offset=number, body=b"x" * 200))
    assert local_build(store, tmp_path / "out", **SMALL).exit == 0
    log = {"commitlogs": (str(store / "commitlog"),), **SMALL}
    assert kinds(again(tmp_path / "out", tables, **log)) == {}
    (path,) = (store / "commitlog").iterdir()
    before, data = path.stat(), bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kinds(again(tmp_path / "out", tables, **log)) == {}
    found = again(tmp_path / "out", tables, recheck=True, **log)
    assert "log-damage" in kinds(found)
    assert known(found) == (0, 1)
    assert found.incremental is not None
    assert found.incremental["bytes_read"] >= 700 * 200
    assert "log-damage" in kinds(again(tmp_path / "out", tables, **log))


def test_not_in_an_input(growing: Growing) -> None:
    growing.tables = growing.folder / "out" / "tables"
    with pytest.raises(InputError, match="lies inside"):
        raise InputError(growing.verify().error or "")
    assert not growing.tables.exists()
