"""Spoilt stores that real stores start: each statement of a preflight is what then lies on the disk and is served.

``make preflight`` has many more of them.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.preflight.compare import Outcome, compare
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import read_log
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import VERSIONS, judged
from tests.repair.odd_judge import lay_out
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, Put, overwrite
from tests.tools.make_log import Message
from tests.tools.tiers import ends

LINES = ends(["4.9.8", "5.3.3", "5.5.0"])
SEED = 50
COUNT = 10
RECORDS = 6_000
BARE = Sizes(segment=54_000, cq_file=20_000, hash_slots=500, index_items=20_000)


@pytest.mark.parametrize("version", ends(VERSIONS))
def test_spoilt_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path) as real:
        found = list(judged(real, tmp_path, SEED, COUNT))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.loads for one in found) >= COUNT // 2
    assert sum(sum(one.comparison.counts.values()) for one in found if one.comparison) > 20 * COUNT


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.0"])
def test_items_that_come_again_from_elsewhere(version: str, tmp_path: Path) -> None:
    """A segment has changed its name. The items of a deleted IndexFile are put again: they lead to where its records say."""
    with RealStores(version, tmp_path) as real:
        (one,) = judged(real, tmp_path, 42000, 1)
    assert one.lines(version) == []
    assert one.loads


@pytest.mark.parametrize("version", [pytest.param("5.4.0", marks=pytest.mark.slow), "5.5.0"])
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


@pytest.mark.parametrize("version", LINES)
def test_a_segment_with_another_segments_name(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker takes a record's PHYSICALOFFSET as it is: its units lead to where the log has nothing."""
    sizes = Sizes(segment=16_384, cq_file=400, hash_slots=50, index_items=400)
    with LogWriter(tmp_path / "store" / "commitlog", sizes.segment) as writer:
        puts = [writer.append(Message(queue_offset=number, body=bytes(150))) for number in range(40)]
    first = tmp_path / "store" / "commitlog" / f"{0:020d}"
    first.rename(first.with_name(f"{sizes.segment:020d}"))
    with RealStores(version, tmp_path / "real") as real:
        said = predict(tmp_path / "store", version, Conf(sizes), tmp_path)
        assert not isinstance(said, str), said
        assert real.start(tmp_path / "store", Conf(sizes)).loads
        given = real.read(tmp_path / "store")
        real.leave(tmp_path / "store")
    # 4.9 looks for offset 0 in the first segment, whatever its name (MappedFileQueue.findMappedFileByOffset).
    assert sum(map(len, given.values())) == (version == "4.9.8")
    (loss,) = said["losses"]
    assert (said["exit"], loss["kind"], loss["count"]) == (4, "records-misplaced", len(puts))
    (verify,) = loss["commands"]
    assert main([*shlex.split(verify)[1:], "--engine", "local"]) == 4
    assert f"its name should be {0:020d}" in capsys.readouterr().out


def _moved(log: Path, what: str, puts: list[Put]) -> None:
    """Have records lie elsewhere than they say: one whose field was hit, or those of two segments that have changed names."""
    if what == "one":
        overwrite(log, puts[390].offset + 28, (puts[390].offset + (1 << 40)).to_bytes(8, "big"))
        return
    first, second, *_ = sorted(log.iterdir())
    first.rename(log / "aside")
    second.rename(first)
    (log / "aside").rename(second)


@pytest.mark.parametrize("version", LINES)
@pytest.mark.parametrize("bare", [False, True], ids=["whole", "bare"])
@pytest.mark.parametrize("what", ["one", "segments"])
def test_records_that_lie_elsewhere(what: str, bare: bool, version: str, tmp_path: Path) -> None:
    """Lost are those to which no unit leads, wherever the recovery begins: as many as a real store does not give a consumer."""
    sizes, log, store = Sizes(16_384, 4000, 50, 400), tmp_path / "log" / "commitlog", tmp_path / "store"
    with LogWriter(log, sizes.segment) as writer:
        # Of many lengths: no unit leads to another record by chance.
        puts = [writer.append(Message(queue_offset=number, body=bytes(100 + number // 30 * 7))) for number in range(400)]
    settings: dict[str, Any] = {"cq_file_size": 4000, "hash_slots": 50, "index_items": 400, "broker_version": version[:3]}
    assert local_build(tmp_path / "log", tmp_path / "out", **settings).exit == 0
    _moved(log, what, puts)
    if bare:
        shutil.copytree(tmp_path / "log", store)
    else:
        lay_out(tmp_path / "out", log, store)
    said = predict(store, version, Conf(sizes), tmp_path)
    assert not isinstance(said, str), said
    with RealStores(version, tmp_path / "real") as real:
        assert real.start(store, Conf(sizes)).loads
        # A consumer is told where a message lies by the message itself.
        told = {put.offset for put in puts} | {puts[390].offset + (1 << 40)}
        given = told & set(real.read(store)["TopicA", 0])
        real.leave(store)
    lost = {loss["kind"]: loss["count"] for loss in said["losses"]}
    assert len(puts) - len(given) == lost.get("records-misplaced", 0) + lost.get("records-hidden", 0)
    assert set(lost) == {("one", True): {"records-hidden", "records-misplaced"}, ("one", False): set()}.get(
        (what, bare), {"records-misplaced"}
    )
    assert said["exit"] == (4 if lost else 0)
