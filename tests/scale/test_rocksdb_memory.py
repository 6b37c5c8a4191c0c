"""Queues in RocksDB: a build takes the same memory for a queue with twice as many units, and for more queues; so does a verify
that lists them."""

from __future__ import annotations

import contextlib
import shutil
import tracemalloc
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.queue.rocksdb import OFFSETS, QueueName, end_key, end_value
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.verify import database as verify_database
from rocketmq_reindex.udfs.verify.database import ListDatabase
from rocketmq_reindex.udfs.verify.queue_tasks import ListingResult
from tests.bench import cases
from tests.scale.test_local_memory import DRIVER, MIB, NOISE, WORKER, watched
from tests.tools.faulty_processes import command

rocksdict = pytest.importorskip("rocksdict")
UNITS = 300_000
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
