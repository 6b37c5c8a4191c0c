"""Stores of brokers with rocksdbCQDoubleWriteEnable: what a preflight says of a start is what the real store then does.

``python -m tests.preflight.database_sweep --both`` has many more of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.queue import rocksdb as pairs
from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from tests.preflight.bases import complete
from tests.preflight.database_sweep import BOTH, VERSIONS, ends_in, judged, start_copy
from tests.preflight.predicted import predict
from tests.preflight.real import ROCKSDB_LIFETIME, RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.spoil_database import changed, folder_of
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

SEED = 5000
COUNT = 8
SIZES = Sizes(segment=16_000, cq_file=2000, hash_slots=50, index_items=2000)
FILES = Conf(SIZES, BOTH | {"combineCQPreferCQType": "default"})
DATABASE = Conf(SIZES, BOTH | {"combineCQPreferCQType": "defaultRocksDB"})
RECORDS = 100


@pytest.mark.parametrize("version", [*(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[1:-1]), VERSIONS[-1]])
def test_spoilt_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path, ROCKSDB_LIFETIME) as real:
        found = list(judged(real, tmp_path, SEED, COUNT, both=True))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.comparison is not None for one in found) >= COUNT // 2


def written(path: Path) -> list[int]:
    """A log of two queues, the second of which has records in the first segment alone; where each record lies."""
    with LogWriter(path / "commitlog", SIZES.segment) as writer:
        for number in range(RECORDS):
            queue = 1 if number in (3, 5) else 0
            writer.append(Message(topic="TopicA", queue_id=queue, properties={"KEYS": f"key-{number}"}, body=bytes(300)))
        return [put.offset for put in writer.puts]


def kinds(said: dict[str, Any]) -> dict[str, int]:
    return {loss["kind"]: loss["count"] for loss in (*said["losses"], *said["warnings"])}


@pytest.mark.parametrize("version", ["5.5.1", pytest.param("5.4.0", marks=pytest.mark.slow)])
def test_a_kind_that_is_newly_enabled(version: str, tmp_path: Path) -> None:
    """Files alone, then both kinds, then RocksDB is read: what is older than the change cannot be read through it."""
    base = tmp_path / "base"
    puts = written(base)
    with RealStores(version, tmp_path, ROCKSDB_LIFETIME) as real:
        complete(real, base, SIZES)
        switched = shutil.copytree(base, tmp_path / "switched")
        # Nothing was ever dispatched to RocksDB: the start does that while it compares.
        said = predict(Path(switched), version, DATABASE, tmp_path)
        assert isinstance(said, str)
        assert "a start with combineCQPreferCQType=default dispatches them" in said
        enabled = Path(shutil.copytree(base, tmp_path / "enabled"))
        said, _, comparison = start_copy(real, Path(shutil.copytree(base, tmp_path / "once")), FILES, tmp_path)
        assert isinstance(said, dict)
        assert comparison is not None
        assert (comparison.differences, said["losses"]) == ([], [])
        assert any("depends on its threads" in note for note in said["notes"])
        assert real.start(enabled, FILES).loads
        real.close(enabled)
        said, outcome, comparison = start_copy(real, enabled, DATABASE, tmp_path)
        assert isinstance(said, dict)
        assert comparison is not None
        assert comparison.differences == []
        hidden = kinds(said)["records-hidden"]
        # At least what lies before the segment in which that start began; nothing more is sure.
        assert outcome.told.queues is not None
        assert hidden == RECORDS - sum(len(queue.served) for queue in outcome.told.queues.values())
        assert hidden >= sum(offset < 16_000 for offset in puts)


@pytest.mark.parametrize("version", ["5.5.1", pytest.param("5.5.0", marks=pytest.mark.slow)])
def test_ends_that_differ(version: str, tmp_path: Path) -> None:
    """Where RocksDB has a queue that ends elsewhere, a broker that reads RocksDB does not start, and one that reads files sets
    RocksDB's queue back; where it has none of it, both set it back."""
    base, queue = tmp_path / "base", QueueName(b"TopicA", 1)
    written(base)
    with RealStores(version, tmp_path, ROCKSDB_LIFETIME) as real:
        complete(real, base, SIZES, BOTH)
        assert ends_in(base) == {("TopicA", 0): RECORDS - 2, ("TopicA", 1): 2}
        key = pairs.end_key(queue, is_max=True)
        for name, value, conf, loads, expected in (
            ("shorter", pairs.end_value(0, 0), DATABASE, False, {"combine-offsets": 1}),
            ("shorter-files", pairs.end_value(0, 0), FILES, True, {"combine-set-back": 1}),
            ("none", None, DATABASE, True, {"records-hidden": 2, "combine-set-back": 1}),
            ("none-files", None, FILES, True, {"combine-set-back": 1}),
        ):
            store = Path(shutil.copytree(base, tmp_path / name))
            changed(folder_of(store), {}, {key: value})
            said, outcome, comparison = start_copy(real, Path(shutil.copytree(store, tmp_path / f"{name}-1")), conf, tmp_path)
            assert isinstance(said, dict)
            assert comparison is not None
            assert (comparison.differences, outcome.told.loads, said["loads"]) == ([], loads, loads)
            assert kinds(said) == expected
            told = [loss["text"] for loss in (*said["losses"], *said["warnings"]) if loss["kind"].startswith("combine")]
            assert "TopicA/1 ends at queue offset 2 in its files, and at " in told[0]
            if conf is FILES:
                # What a preflight says of RocksDB's queue is seen when a broker reads it.
                assert real.start(store, FILES).loads
                real.close(store)
                assert ends_in(store) == {("TopicA", 0): RECORDS - 2, ("TopicA", 1): 2}
                said, _, comparison = start_copy(real, store, DATABASE, tmp_path)
                assert isinstance(said, dict)
                assert comparison is not None
                assert (comparison.differences, kinds(said)) == ([], {"records-hidden": 2})
