"""Attempts of tasks that come late, files that are none, and an earlier build that nothing may lose."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.staging import StagingFolder
from tests.fault.disk import tiny_store, tree
from tests.tools.faulty_runs import command
from tests.tools.local_engine import InlineEngine, local_build

SMALL = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}


class Remembering(InlineEngine):
    """Keeps every task of a run, to run it once more."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Callable[[], object]] = []

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        self.tasks += [lambda one=one: list(function(iter([one]))) for one in self._numbers(tasks)]  # type: ignore[misc]
        return super().scan(function, tasks)

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        rows = sorted((row for row in self._rows if row.kind == kind), key=lambda row: row.bucket)
        if kind == handover.UNITS:
            self.tasks.append(lambda: list(reducer(handover.batches(rows))))
        return super().reduce(kind, left_out, before, reducer)

    def numbers(self, function: Batches, count: int) -> list[str]:
        self.tasks += [lambda one=one: list(function(iter([one]))) for one in self._numbers(count)]  # type: ignore[misc]
        return super().numbers(function, count)


def test_late_attempts_leave_nothing(tmp_path: Path) -> None:
    """The loser of a speculation that wakes up behind the end: it fails, and makes no folder anew."""
    engine, place = Remembering(), tmp_path / "place"
    place.mkdir()
    assert local_build(tiny_store(tmp_path / "store"), place / "out", engine, **SMALL).exit == 0
    before = tree(place)
    assert len(engine.tasks) >= 5
    for task in engine.tasks:
        with pytest.raises(FileNotFoundError):
            task()
    assert tree(place) == before
    assert os.listdir(place) == ["out"]


def test_attempts_behind_the_seal_change_nothing(tmp_path: Path) -> None:
    """From the moment the tree is made durable on, no task can put a file into it."""
    target = tmp_path / "out"
    with output.locked(str(target)), output.staging(str(target)) as staging:
        files.write_bytes(staging.temporary, files.join(staging.tree, "reindex.json"), [b"{}"])
        os.rename(staging.tree, staging.sealed)
        with pytest.raises(FileNotFoundError):
            files.write_bytes(staging.temporary, files.join(staging.tree, "reindex.json"), [b"late"])
        with pytest.raises(FileNotFoundError):
            files.make_folder(files.join(staging.tree, "consumequeue", "T", "0"), below=staging.tree)
        os.rename(staging.sealed, staging.tree)
        output.publish(staging, str(target), False)
    assert tree(tmp_path) == {"out": b"", "out/reindex.json": b"{}"}


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """It would be waited for, or never end."""
    os.mkfifo(tmp_path / "fifo")
    signal.alarm(30)
    for path in (str(tmp_path / "fifo"), "/dev/zero", str(tmp_path)):
        with pytest.raises(InputError, match="is no regular file"):
            files.Reader(path)
        with pytest.raises(InputError, match="is no regular file"):
            files.read_bytes(path)
    signal.alarm(0)


def test_a_swap_between_look_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO in the place of the file that was looked at."""
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    plain = os.stat

    def swap(path: str) -> os.stat_result:
        found = plain(path)
        os.replace(tmp_path / "fifo", tmp_path / "file")
        assert stat.S_ISREG(found.st_mode)
        return found

    signal.alarm(30)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", swap)
        with pytest.raises(InputError, match="is no regular file"):
            files.Reader(str(tmp_path / "file"))
    signal.alarm(0)


def test_an_earlier_build_is_not_lost_to_a_stranger(tmp_path: Path) -> None:
    """A run dies between its two renames, and somebody makes DIR before the next one: both stay."""
    target = tmp_path / "out"
    left = StagingFolder(str(tmp_path / ".out.rmq-reindex-0123456789ab"))
    for folder, text in ((left.replaced, "earlier"), (left.sealed, "new"), (str(target), "stranger")):
        os.makedirs(folder)
        (Path(folder) / "reindex.json").write_text(text)
    with output.locked(str(target)), output.staging(str(target)):
        pass
    assert (target / "reindex.json").read_text() == "stranger"
    assert (Path(left.replaced) / "reindex.json").read_text() == "earlier"


def test_dir_filled_while_waiting_for_the_lock(tmp_path: Path) -> None:
    """What was checked before the lock is checked again behind it: refused at once, not after the whole build."""
    store, out = tiny_store(tmp_path / "store"), tmp_path / "out"
    assert command(store, out)[0]["exit"] == 0
    with pytest.raises(InputError, match="is not empty"), output.locked(str(out)), output.staging(str(out), False):
        raise AssertionError("begun")


def test_executors_of_a_cluster_can_reach_the_driver() -> None:
    """Only in local mode does it listen on the loopback interface."""
    assert session.configuration("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(session.configuration("spark://somewhere:7077"))
