"""Answers that are remembered: never longer than the store looks the same, and never more than there is room for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import remembered
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.browsing import Pages

DAY = 86_400
NAMES = (
    "commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000", "index/20260101000000000", "checkpoint", "abort",
    "config/topics.json", "config/consumerOffset.json", "timerwheel", "timerlog/00000000000000000000",
    "consumequeue_rocksdb/CURRENT", "consumequeue_rocksdb/MANIFEST-000005", "consumequeue_rocksdb/000004.log",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> TracedStore:
    for name in NAMES:
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
    return TracedStore("a", str(tmp_path / "store"))


class Clock:
    """A time that is told. By it files that were just made have not changed for a day."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> int:
        return time.time_ns() + int((DAY + self.seconds) * 10**9)


class Counting:
    """Makes answers, each with its number."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, Any]:
        self.count += 1
        return {"number": self.count, "name": "\udcff"}


def memory() -> tuple[remembered.Remembered, Clock, Counting]:
    clock = Clock()
    return remembered.Remembered(clock, clock.now), clock, Counting()


def test_an_answer_is_remembered(store: TracedStore) -> None:
    kept, clock, make = memory()
    first = kept.ask(store, "q", make)
    clock.seconds = remembered.KEPT_SECONDS
    second = kept.ask(store, "q", make)
    assert first == second  # also when it looked
    assert (first["number"], first["name"]) == (1, "\udcff")
    first["number"] = 99
    assert kept.ask(store, "q", make)["number"] == 1
    assert kept.ask(store, "another", make)["number"] == 2
    assert kept.ask(TracedStore("b", store.path), "q", make)["number"] == 3
    clock.seconds += 1
    again = kept.ask(store, "q", make)
    assert again["number"] == 4
    assert again["lookedAt"] > second["lookedAt"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["append", "write with the old time", "replace with the old time", "remove", "another"])
def test_any_change_counts(name: str, how: str, store: TracedStore) -> None:
    kept, _, make = memory()
    kept.ask(store, "q", make)
    path = Path(store.path, name)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    if how == "append":
        with open(path, "ab") as file:
            file.write(b"y")
        os.utime(path, ns=times)
    elif how == "write with the old time":
        while path.stat().st_ctime_ns <= times[1] + 20_000_000:
            # A clock tick of the kernel later: within one, only the rule of SETTLED helps.
            with open(path, "r+b") as file:
                file.write(b"z")
            os.utime(path, ns=times)
    elif how == "replace with the old time":
        other = path.with_name("other")
        other.write_bytes(b"y" * 10)
        os.utime(other, ns=times)
        other.replace(path)
    elif how == "remove":
        path.unlink()
    else:
        path.with_name("00000000000000004096").write_bytes(b"")
    assert kept.ask(store, "q", make)["number"] == 2
    assert kept.ask(store, "q", make)["number"] == 2


def test_files_that_changed_just_now(store: TracedStore) -> None:
    """What is written to them next may leave the same time behind: nothing is remembered."""
    kept, make = remembered.Remembered(), Counting()
    assert [kept.ask(store, "q", make)["number"] for _ in range(3)] == [1, 2, 3]
    ahead = time.time_ns() + DAY * 10**9
    os.utime(Path(store.path, NAMES[0]), ns=(ahead, ahead))
    kept, clock, make = memory()
    clock.seconds = -2.0 * DAY
    assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [1, 2]


def test_a_log_elsewhere_counts(store: TracedStore, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    segment = tmp_path / "log" / f"{0:020d}"
    segment.write_bytes(b"x")
    kept, _, make = memory()
    named = TracedStore("a", store.path, (str(tmp_path / "log"),))
    assert [kept.ask(named, "q", make)["number"] for _ in range(2)] == [1, 1]
    segment.write_bytes(b"xy")
    assert kept.ask(named, "q", make)["number"] == 2


def test_who_holds_the_lock_counts(store: TracedStore) -> None:
    """A broker that is killed changes no file."""
    lock = Path(store.path, "lock")
    lock.write_bytes(b"")
    kept, _, make = memory()
    assert kept.ask(store, "q", make)["number"] == 1
    held = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", held, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [2, 2]
        broker.kill()
    assert kept.ask(store, "q", make)["number"] == 3


def test_what_cannot_be_looked_at_whole(store: TracedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _, make = memory()
    monkeypatch.setattr(remembered, "FILES_MAX", 5)
    assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [1, 2]
    monkeypatch.undo()
    assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [3, 3]
    (tmp_path / "elsewhere").mkdir()
    Path(store.path, "consumequeue", "linked").symlink_to(tmp_path / "elsewhere")
    assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [4, 5]
    shutil.rmtree(store.path)
    assert [kept.ask(store, "q", make)["number"] for _ in range(2)] == [6, 7]


def test_there_is_room_for_so_much(store: TracedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _, make = memory()
    monkeypatch.setattr(remembered, "ANSWERS_MAX", 3)
    for question in "abacd":
        kept.ask(store, question, make)
    # b is the one that nobody asked for longest.
    assert [kept.ask(store, question, make)["number"] for question in "acd"] == [1, 3, 4]
    assert kept.ask(store, "b", make)["number"] == 5
    kept, _, _ = memory()
    made: list[str] = []

    def large(size: int) -> Callable[[], dict[str, Any]]:
        def make() -> dict[str, Any]:
            made.append("made")
            return {"text": "x" * size}

        return make

    for _ in range(2):
        kept.ask(store, "too large", large(remembered.BYTES_MAX // 3))
    assert len(made) == 2
    monkeypatch.setattr(remembered, "ANSWERS_MAX", 100)
    for number in range(10):
        kept.ask(store, f"{number}", large(remembered.BYTES_MAX // 5))
    made.clear()
    for number in range(10):
        kept.ask(store, f"{9 - number}", large(0))
    assert 4 <= 10 - len(made) <= 5


def test_failures_are_not_remembered(store: TracedStore) -> None:
    kept, _, make = memory()

    def fail() -> dict[str, Any]:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        kept.ask(store, "q", fail)
    assert kept.ask(store, "q", make)["number"] == 1
    (found,) = kept.ask_all([store], "other", lambda _: fail(), 60)
    assert isinstance(found, InputError)
    (found,) = kept.ask_all([store], "other", lambda _: make(), 60)
    assert isinstance(found, dict)


def test_a_slow_answer_is_made_once(store: TracedStore) -> None:
    """Who asks again while it is made waits for the same; afterwards it is remembered."""
    kept, clock, make = memory()
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: TracedStore) -> dict[str, Any]:
        begun.release()
        goes_on.wait(60)
        return make()

    assert kept.ask_all([store], "q", slow, 0) == [None]
    assert kept.ask_all([store], "q", slow, 0) == [None]
    assert begun.acquire(timeout=60)
    goes_on.set()
    (found,) = kept.ask_all([store], "q", slow, 60)
    assert isinstance(found, dict)
    assert found["number"] == 1
    assert clock.seconds == 0
    assert not begun.acquire(blocking=False)


def test_a_slow_answer_about_a_store_that_always_changes(store: TracedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for who asks next, once and for a while: else nobody would ever get one."""
    kept, clock, make = memory()
    monkeypatch.setattr(remembered, "SETTLED", 1 << 62)
    goes_on, numbers = threading.Event(), list[int]()

    def slow(_: TracedStore) -> dict[str, Any]:
        goes_on.wait(60)
        return make()

    for passed in (0.0, 2 * remembered.LATE_SECONDS):
        goes_on.clear()
        assert kept.ask_all([store], "q", slow, 0) == [None]
        goes_on.set()
        for thread in threading.enumerate():
            if thread.name == "browse: q":
                thread.join(60)
        clock.seconds += passed
        for _ in range(2):
            (found,) = kept.ask_all([store], "q", slow, 60)
            assert isinstance(found, dict)
            numbers.append(found["number"])
    assert numbers == [1, 2, 4, 5]


def test_pages_are_new_where_the_store_is(store: TracedStore) -> None:
    """Pages of one process: a segment that comes, and a file that goes, are seen at once."""
    for folder, _, names in os.walk(store.path):
        for name in names:
            os.utime(Path(folder, name), (0, 0))
    pages = Pages(store.path)
    assert pages.json("log", store="store")["count"] == 1
    Path(store.path, "commitlog", f"{10:020d}").write_bytes(b"x")
    assert pages.json("log", store="store")["count"] == 2
    assert pages.json("disk", store="store")["files"] == len(NAMES) + 1
    Path(store.path, "abort").unlink()
    assert pages.json("disk", store="store")["files"] == len(NAMES)
    assert pages.json("store", store="store")["info"]["clean_stop"]


def test_states_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"12345")
    (tmp_path / "top").symlink_to(tmp_path / "a")
    found = files.states(str(tmp_path), 100)
    assert found.whole
    assert sorted((state.name, state.size) for state in found.files) == [("a/b/c", 5), ("top/b/c", 5)]
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    found = files.states(str(tmp_path), 100)
    assert (found.whole, len(found.files)) == (False, 2)
    assert files.states(str(tmp_path), 2).whole is False
    with pytest.raises(OSError, match="No such file"):
        files.states(str(tmp_path / "none"), 10)
