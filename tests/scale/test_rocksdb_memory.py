"""Queues in RocksDB: a build takes the same memory for a queue with twice as many units, and for more queues; so does a verify
that lists them."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.files.rocksdb import Database, make_database, write_table
from rocketmq_reindex.storage_format.queue.rocksdb import (
    OFFSETS,
    UNITS as UNIT_FAMILY,
    QueueName,
    end_key,
    end_value,
    unit_key,
    unit_prefix,
)
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.verify import database as verify_database
from rocketmq_reindex.udfs.verify.database import ListDatabase
from rocketmq_reindex.udfs.verify.queue_tasks import ListingResult
from tests.bench import cases
from tests.scale.test_local_memory import DRIVER, MIB, NOISE, WORKER, watched
from tests.tools.faulty_processes import command
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

rocksdict = pytest.importorskip("rocksdict")
UNITS = 300_000
LIGHT = 80_000
LOCAL = ("--engine=local", "--master=local[2]")


def peaks_of(folder: Path, units: int, queues: int) -> tuple[int, int]:
    """Of the driver, and of a worker, of a build from a log with a hot queue and small ones."""
    store, out = folder / f"store-{units}", folder / f"out-{units}"
    cases.hot_and_small(store, units, queues, 1 << 27)
    words = command(store, out, *LOCAL, "--consumequeue-type=both", "--only=consumequeue", "--progress=json")
    driver, worker, summary = watched(words, folder / f"build-{units}")
    assert (summary["exit"], summary["units"], summary["error"]) == (0, units + queues, None)
    assert (out / "consumequeue" / "CURRENT").exists()
    shutil.rmtree(store)
    shutil.rmtree(out)
    return driver, worker


def test_twice_as_many_units_and_queues(tmp_path: Path) -> None:
    small, large = peaks_of(tmp_path, UNITS, 2000), peaks_of(tmp_path, 2 * UNITS, 4000)
    print(f"MiB of driver and worker: {[[size // MIB for size in both] for both in (small, large)]}")
    assert large[0] < DRIVER
    assert large[1] < WORKER
    assert large[0] < small[0] + NOISE
    assert large[1] < small[1] + NOISE


def light_queues(folder: Path, count: int) -> Path:
    """A database of light queues, each with an end and no unit."""
    options, others = rocksdict.Options(raw_mode=True), rocksdict.Options(raw_mode=True)
    options.create_missing_column_families(True)
    database = rocksdict.Rdict(str(folder), options, column_families={OFFSETS: others})
    batch, family = rocksdict.WriteBatch(raw_mode=True), database.get_column_family_handle(OFFSETS)
    for number in range(count):
        batch.put(end_key(QueueName(b"%%LMQ%%$lite$%07d" % number, 0), is_max=True), end_value(0, 0), family)
    database.write(batch)
    database.close()
    return folder


def listed(folder: Path) -> tuple[int, int]:
    """How many queues a verify lists, and the bytes that Python then holds at most."""
    tracemalloc.start()
    try:
        for row in ListDatabase(str(folder), tuple(range(8)))._rows():
            last = row.data
        result = ListingResult.from_json(last)
        return result.queues, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_any_number_of_light_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may have millions: none is held while they are listed, nor where one topic's are asked for."""
    monkeypatch.setattr(verify_database, "_QUEUES", 1 << 10)
    small, large = (listed(light_queues(tmp_path / f"{count}", count)) for count in (5_000, 20_000))
    assert (small[0], large[0]) == (5_000, 20_000)
    assert large[1] < 1.2 * small[1]
    with contextlib.closing(QueueDatabase(str(tmp_path / "20000"))) as database:
        assert (sum(1 for _ in database.topics()), database.ids(b"%LMQ%$lite$0012345")) == (20_000, [0])
        assert database.ids(b"%LMQ%$lite$001234") == []


def store_of_light_queues(store: Path, count: int) -> None:
    """A topic with ConsumeQueue files, and so many light queues in RocksDB alone, of records that have expired."""
    with LogWriter(store / "commitlog", 1 << 20) as writer:
        for number in range(2000):
            writer.append(Message(topic="T", queue_offset=number, body=bytes(1000)))
    (store / "commitlog" / f"{0:020d}").unlink()
    out = store.with_name(f"{store.name}-out")
    assert local_build(store, out, broker_version="5.5", only=("consumequeue",)).exit == 0
    (out / "consumequeue").rename(store / "consumequeue")
    shutil.rmtree(out)
    value = (460).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(16)

    def queues() -> Iterator[list[QueueName]]:
        for low in range(0, count, 10_000):
            yield [QueueName(b"%%LMQ%%$lite$%07d" % number, 0) for number in range(low, min(low + 10_000, count))]

    ends = (([end_key(queue, True) for queue in some], [end_value(460, 0)] * len(some)) for some in queues())
    units = (([unit_key(unit_prefix(queue), 0) for queue in some], [value] * len(some)) for some in queues())
    write_table(str(store / "units"), units, compressed=True)
    write_table(str(store / "ends"), ends, compressed=False)
    tables = {UNIT_FAMILY: [str(store / "units")], OFFSETS: [str(store / "ends")]}
    make_database(str(store / "consumequeue"), tables, UNIT_FAMILY)


def test_a_verify_of_light_queues_beside_files(tmp_path: Path) -> None:
    """Neither the driver nor a task holds a queue that it has compared with the log."""
    peaks = list[tuple[int, int]]()
    for count in (LIGHT // 16, LIGHT):
        store = tmp_path / f"{count}"
        store_of_light_queues(store, count)
        words = ["verify", str(store), *LOCAL, "--only=consumequeue", "--progress=json", "--json"]
        driver, worker, summary = watched([sys.executable, "-m", "rocketmq_reindex", *words], tmp_path / f"verify-{count}")
        assert (summary["exit"], summary["error"], summary["idle_queues"]) == (0, None, count)
        assert any(f"{count:,} queues in RocksDB alone, compared with the log" in note for note in summary["notes"])
        peaks.append((driver, worker))
        shutil.rmtree(store)
    print(f"MiB of driver and worker: {[[size // MIB for size in both] for both in peaks]}")
    assert max(driver for driver, _ in peaks) < DRIVER
    assert max(worker for _, worker in peaks) < WORKER
    assert peaks[1][0] < peaks[0][0] + NOISE
    assert peaks[1][1] < peaks[0][1] + NOISE


def test_look_ups_of_a_light_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify asks four things of each, once, and reads nothing ahead that is another queue's."""
    store, asked, ahead = tmp_path / "store", Counter[str](), Counter[bool]()
    store_of_light_queues(store, 300)

    def counted(name: str) -> None:
        ask = getattr(Database, name)

        def counting(database: Database, family: str, *words: Any, **named: Any) -> Any:
            asked[f"{name} {family}"] += 1
            ahead[name == "pairs" and family == UNIT_FAMILY and not named.get("few")] += 1
            return ask(database, family, *words, **named)

        monkeypatch.setattr(Database, name, counting)

    for name in ("get", "first", "last", "pairs"):
        counted(name)
    summary = local_verify(store, InlineEngine(2, 2), only=("consumequeue",))
    assert (summary.exit, summary.idle_queues) == (0, 300)
    assert all(count <= 300 + 10 for count in asked.values()), asked
    assert asked.total() <= 4 * 300 + 30
    assert ahead[True] == 0


def test_info_of_light_queues(tmp_path: Path) -> None:
    """None is held that was not looked into."""
    peaks = list[int]()
    for count in (5_000, 20_000):
        store = tmp_path / f"{count}"
        store_of_light_queues(store, count)
        tracemalloc.start()
        try:
            found = rr.info(store)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found.light_unlisted == count + 1 - found.queues_looked_into
    assert peaks[1] < 1.2 * peaks[0]
