"""Queues whose messages have all expired: --expired-queues keep takes their ends from STORE, or says why it cannot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.queue.rocksdb import QueueName
from tests.builds.test_rocksdb_built import SIZES, ends_in
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


def expired(store: Path) -> Path:
    """A log that begins at 2^14: all of a queue has expired, another goes on; and the ConsumeQueues of before."""
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        for number in range(60):
            writer.append(Message(topic="gone", queue_offset=number, properties={"KEYS": f"key-{number}"}))
        while len(list((store / "commitlog").iterdir())) < 3:
            number = len(writer.puts) - 60
            writer.append(Message(topic="on", queue_id=2, queue_offset=number, properties={"KEYS": f"key-{number}"}))
    return store


@pytest.mark.parametrize("kind", ["file", "rocksdb"])
def test_ends_of_expired_queues(kind: str, tmp_path: Path) -> None:
    """Both ways: the queue has its end from the kind that is there, also where that has the end alone."""
    store = expired(tmp_path / "store")
    before = local_build(store, tmp_path / "before", consumequeue_type=kind, **SIZES)
    assert before.exit == 0
    shutil.move(tmp_path / "before" / "consumequeue", store / "consumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    out = tmp_path / "log"
    dropped = local_build(store, out, consumequeue_type="both", **SIZES)
    lost = "consumequeue: 1 queue of STORE without a record in the log: a broker counts their messages from 0 again"
    assert (dropped.exit, any(lost in warning for warning in dropped.warnings)) == (0, kind == "file")
    assert not (out / "consumequeue" / "gone").exists()
    out = tmp_path / "both"
    built = local_build(store, out, consumequeue_type="both", expired_queues="keep", **SIZES)
    assert (built.exit, built.error) == (0, None)
    assert "--expired-queues keep: 1 queue without a record in the log" in built.notes
    ends = {(end.queue, end.is_max): end for end in ends_in(out / "consumequeue")}
    gone = ends[QueueName(b"gone", 0), True]
    assert gone.queue_offset == 59
    assert gone.phy_offset < 1 << 14
    assert ends[QueueName(b"gone", 0), False][2:] == (1 << 14, 60)
    (file,) = (out / "consumequeue" / "gone" / "0").iterdir()
    assert file.read_bytes()[20 * 59 : 20 * 60] != bytes(20)
    assert file.read_bytes()[20 * 60 :] == bytes(2000 - 1200)
    alone = local_build(store, tmp_path / "alone", consumequeue_type="rocksdb", expired_queues="keep", **SIZES)
    assert (alone.exit, "--expired-queues keep: 1 queue without a record in the log" in alone.notes) == (0, True)
    # The end is kept once more, by each kind alone, and verify has nothing to say.
    shutil.rmtree(store / "consumequeue")
    for part in ("consumequeue", "index", "checkpoint"):
        shutil.move(out / part, store / part)
    assert kinds(local_verify(store, **SIZES)) == {}
    for topic in ("gone", "on"):
        shutil.rmtree(store / "consumequeue" / topic)
    assert kinds(local_verify(store, **SIZES)) == {}
    again = local_build(store, tmp_path / "again", consumequeue_type="file", expired_queues="keep", **SIZES)
    assert again.exit == 0
    assert (tmp_path / "again" / "consumequeue" / "gone" / "0" / file.name).exists()


def _no_file(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def _unreadable(store: Path) -> None:
    folder = store / "consumequeue" / "gone" / "0"
    (folder / f"{0:020d}").unlink()
    (folder / f"{0:020d}").mkdir()


def _zeros(store: Path) -> None:
    (store / "consumequeue" / "gone" / "0" / f"{0:020d}").write_bytes(bytes(2000))


def _cut(store: Path) -> None:
    path = store / "consumequeue" / "gone" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:100])


def _damaged(store: Path) -> None:
    with (store / "consumequeue" / "gone" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(59 * 20)
        file.write(b"\xff" * 20)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_no_file, "store: has no ConsumeQueues that say where a queue ended"),
        (_unreadable, "gone/0: has no unit at its end"),
        (_zeros, "gone/0: has no unit at its end"),
        (_damaged, "gone/0: has no unit at its end"),
        (_cut, "gone/0: has a file of 100 bytes, and others have 2,000: its end is not known"),
    ],
)
def test_ends_that_cannot_be_read(damage: Any, told: str, tmp_path: Path) -> None:
    """An end is never left out, or taken too low, in silence."""
    store = expired(tmp_path / "store")
    assert local_build(store, tmp_path / "before", **SIZES).exit == 0
    shutil.move(tmp_path / "before" / "consumequeue", store / "consumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    damage(store)
    built = local_build(store, tmp_path / "out", expired_queues="keep", **SIZES)
    assert built.exit == 1
    assert told in str(built.error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["file", "both", "rocksdb"])
def test_an_end_that_cannot_be_read_of_a_queue_that_goes_on(kind: str, tmp_path: Path) -> None:
    """The log says where it ends, so nothing is lost: a warning, and the other queue keeps its end."""
    store = expired(tmp_path / "store")
    assert local_build(store, tmp_path / "before", **SIZES).exit == 0
    shutil.move(tmp_path / "before" / "consumequeue", store / "consumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    for file in (store / "consumequeue" / "on" / "2").iterdir():
        file.write_bytes(bytes(2000))
    built = local_build(store, tmp_path / "out", consumequeue_type=kind, expired_queues="keep", **SIZES)
    assert (built.exit, built.error) == (0, None)
    (warning,) = (text for text in built.warnings if text.startswith("--expired-queues keep: "))
    assert "1 queue with records in the log, whose ends in STORE cannot be read: the log says where they end: " in warning
    assert warning.endswith("on/2: has no unit at its end")
    assert "--expired-queues keep: 1 queue without a record in the log" in built.notes
    if kind != "file":
        ends = {end.queue: end.queue_offset for end in ends_in(tmp_path / "out" / "consumequeue") if end.is_max}
        assert ends[QueueName(b"gone", 0)] == 59
        assert set(ends) >= {QueueName(b"on", 2)}


@pytest.mark.parametrize("kind", ["file", "rocksdb"])
def test_expired_queues_of_other_topics(kind: str, tmp_path: Path) -> None:
    """They are not kept: the log's queues of these topics are not built either."""
    store = expired(tmp_path / "store")
    assert local_build(store, tmp_path / "before", consumequeue_type=kind, **SIZES).exit == 0
    shutil.move(tmp_path / "before" / "consumequeue", store / "consumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    built = local_build(
        store, tmp_path / "out", consumequeue_type="both", expired_queues="keep", include_topics=("o*",), **SIZES
    )
    assert built.exit == 0
    assert {end.queue.topic for end in ends_in(tmp_path / "out" / "consumequeue")} == {b"on"}
    assert not (tmp_path / "out" / "consumequeue" / "gone").exists()


def test_expired_batch_queues(tmp_path: Path) -> None:
    """They are counted: their ends are not kept."""
    store = expired(tmp_path / "store")
    assert local_build(store, tmp_path / "before", batch_topics=("gone",), **SIZES).exit == 0
    for name in ("consumequeue", "batchconsumequeue"):
        shutil.move(tmp_path / "before" / name, store / name)
    (store / "commitlog" / f"{0:020d}").unlink()
    built = local_build(store, tmp_path / "out", expired_queues="keep", **SIZES)
    assert built.exit == 0
    assert "--expired-queues keep: 1 batch queue without a record in the log: their ends are not kept" in built.warnings


def test_an_end_that_the_log_has_overtaken(tmp_path: Path) -> None:
    """Old queues beside a log that goes on with them: the log counts."""
    store = expired(tmp_path / "store")
    assert local_build(store, tmp_path / "old", until_offset=1 << 14, **SIZES).exit == 0
    shutil.move(tmp_path / "old" / "consumequeue", store / "consumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    assert local_build(store, tmp_path / "out", consumequeue_type="both", expired_queues="keep", **SIZES).exit == 0
    ends = {end.queue: end for end in ends_in(tmp_path / "out" / "consumequeue") if end.is_max}
    last = max(int(path.name) for path in (tmp_path / "out" / "consumequeue" / "on" / "2").iterdir())
    assert ends[QueueName(b"on", 2)].queue_offset * 20 >= last
