"""Spoilt stores that real stores start: each statement of a preflight is what then lies on the disk and is served.

``make preflight`` has many more of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.preflight.compare import Outcome, compare
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import VERSIONS, judged
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

SEED = 50
COUNT = 10
RECORDS = 6_000
BARE = Sizes(segment=54_000, cq_file=20_000, hash_slots=500, index_items=20_000)


@pytest.mark.parametrize("version", VERSIONS)
def test_spoilt_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path) as real:
        found = list(judged(real, tmp_path, SEED, COUNT))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.loads for one in found) >= COUNT // 2
    assert sum(sum(one.comparison.counts.values()) for one in found if one.comparison) > 20 * COUNT


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_fourteen_segments_without_consumequeue(version: str, tmp_path: Path) -> None:
    """The newest ten get their units back; all do where commitLogRecoverMaxNum allows it."""
    bare = tmp_path / "bare"
    with LogWriter(bare / "commitlog", BARE.segment) as writer:
        for number in range(RECORDS):
            writer.append(Message(queue_id=number % 4, properties={"KEYS": f"key-{number}"}, body=bytes(14)))
        puts = writer.puts
    segments = sorted(path.name for path in (bare / "commitlog").iterdir())
    assert len(segments) == 14
    units = sum(put.offset >= int(segments[-10]) for put in puts)
    with RealStores(version, tmp_path) as real:
        for name, conf, served in (
            ("limited", Conf(BARE), units),
            ("raised", Conf(BARE, {"commitLogRecoverMaxNum": "14"}), RECORDS),
        ):
            store = tmp_path / name
            shutil.copytree(bare, store)
            said = predict(store, version, conf, tmp_path)
            assert not isinstance(said, str), said
            before, log = read_disk(store, BARE.hash_slots), read_log(store / "commitlog", version, True)
            told = real.start(store, conf)
            after = read_disk(store, BARE.hash_slots)
            real.leave(store)
            outcome = Outcome(version, False, told, before, after, log, puts[-1].offset + puts[-1].size, False, True, False)
            assert compare(said, outcome).differences == []
            assert told.queues
            assert sum(place >= 0 for queue in told.queues.values() for place in queue.served) == served
            assert (said["dispatch"]["hidden_records"], said["exit"]) == (RECORDS - served, 4 if served < RECORDS else 0)
            assert said["log"]["limited"] == (served < RECORDS)
