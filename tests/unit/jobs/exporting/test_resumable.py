"""``export --resumable``: wherever a run is killed, the next ones give what one run gives, each message once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex import files
from rocketmq_reindex.jobs.api import running_here
from rocketmq_reindex.jobs.command.results import Interrupts
from rocketmq_reindex.jobs.exporting import options, tasks
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools.encode import EPOCH, Message
from tests.tools.exported import damaged_store, rows_of
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases

pytestmark = pytest.mark.usefixtures("inline_local")
FORMATS: Final[tuple[Any, ...]] = ("jsonl", "csv", "parquet", "delta", "iceberg")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store of several segments, with all that a log may hold."""
    return damaged_store(tmp_path_factory.mktemp("resumed") / "store")


def content(place: Path, kind: str) -> Any:
    """Returns the rows of an export, whichever files they are in."""
    if kind in ("jsonl", "csv"):
        return place.read_bytes()
    return rows_of(place, kind)


def facts(done: Any) -> Any:
    return done.messages, done.size, done.topics, done.left_out, done.damaged, done.exit_status


class Killed(BaseException):
    """What a process that was killed does no more."""


_CHANGES: Final = frozenset({"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"})


class Death:
    """Ends a run at its n-th change of a file below a folder: from then on it changes none."""

    def __init__(self) -> None:
        self.below, self.left = "", -1
        self.count = 0
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.below or (event not in _CHANGES and event != "open"):
            return
        path = str(os.fspath(given[0])) if isinstance(given[0], (str, os.PathLike)) else ""
        writes = event != "open" or bool(int(given[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        # A lock ends with its process.
        is_lock = path.endswith(".lock")
        if writes and not is_lock and path.startswith(self.below) and threading.current_thread() is threading.main_thread():
            self.count += 1
            if 0 <= self.left < self.count:
                raise Killed

    @contextlib.contextmanager
    def after(self, count: int, below: Path) -> Iterator[None]:
        """End what runs within at its change number ``count``."""
        self.below, self.left, self.count = str(below), count, 0
        try:
            yield
        except Killed:
            pass
        finally:
            self.below = ""


@pytest.fixture(scope="module")
def death() -> Death:
    return Death()


@pytest.fixture
def undurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is waited for until it is on the disk, which others may keep busy: a process that dies loses nothing by that."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(files, "sync", lambda *_: None)


@pytest.fixture(scope="module")
def undisturbed(store: Path, death: Death, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], tuple[Any, Any, int]]:
    """Returns what gives, for a format, the facts and the content of an export, and how many changes of files one makes."""

    @cache
    def get(kind: Any) -> tuple[Any, Any, int]:
        place = tmp_path_factory.mktemp("undisturbed")
        whole = rr.export(store, to=place / "whole", format=kind, kind="all")
        assert whole.damaged == 3
        with death.after(-1, place):
            rr.export(store, to=place / "out", format=kind, kind="all", resumable=True)
        assert death.count > 20
        return facts(whole), content(place / "whole", kind), death.count

    return get


@pytest.mark.usefixtures("undurable")
@pytest.mark.parametrize("kind", FORMATS)
def test_killed_at_random_moments(
    store: Path, tmp_path: Path, death: Death, undisturbed: Callable[[Any], tuple[Any, Any, int]], kind: Any, seed: int
) -> None:  # fmt: skip
    whole, wanted, changes = undisturbed(kind)
    place, drawn = tmp_path / "runs", random.Random(seed)
    for _ in range(cases(4, 1)):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for _ in range(4):
            with death.after(drawn.randrange(changes), place), contextlib.suppress(InputError):
                rr.export(store, to=place / "out", format=kind, kind="all", resumable=True)
            if (place / "out").exists():
                break
        if not (place / "out").exists():
            done = rr.export(store, to=place / "out", format=kind, kind="all", resumable=True)
            assert facts(done) == whole
        else:
            with pytest.raises(InputError):
                rr.export(store, to=place / "out", format=kind, kind="all", resumable=True)
        assert content(place / "out", kind) == wanted
        assert [path.name for path in place.iterdir() if not path.name.endswith(".lock")] == ["out"]


DIES: Final = """
import os, sys, threading, rocketmq_reindex as rr
rename, left = os.rename, [int(sys.argv[4])]
def dies(old, new):
    rename(old, new)
    left[0] -= os.path.basename(os.path.dirname(new)) == "marks"
    if left[0] == 0:
        os.kill(os.getpid(), 9)
os.rename = dies
rr.export(sys.argv[1], to=sys.argv[2], format=sys.argv[3], kind="all", resumable=True)
"""


def stopped(store: Path, target: Path, form: Any = "parquet", marks: int = 3, **given: Any) -> Path:
    """Lets a run end behind some segments. Returns the folder of its work."""
    rename, left = os.rename, [marks]

    def dies(old: str, new: str) -> None:
        rename(old, new)
        left[0] -= os.path.basename(os.path.dirname(new)) == "marks"
        if left[0] == 0:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", dies)
        with pytest.raises(Killed):
            rr.export(store, to=target, format=form, resumable=True, **given)
    return target.parent / f".{target.name}.rmq-reindex-work"


def test_a_process_that_is_killed(store: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", DIES, str(store), str(tmp_path / "out"), "jsonl", "3"]
    assert subprocess.run(words).returncode == -9
    done = rr.export(store, to=tmp_path / "out", kind="all", resumable=True)
    assert done.resumed == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["jsonl", "iceberg"])
def test_what_was_done_is_not_read_again(store: Path, tmp_path: Path, kind: Any) -> None:
    stopped(store, tmp_path / "out", kind, kind="all")
    done = rr.export(store, to=tmp_path / "out", format=kind, kind="all", resumable=True)
    assert done.resumed == 3
    assert "resumed: 3 segments had been exported before" in done.lines()
    whole = rr.export(store, to=tmp_path / "whole", format=kind, kind="all")
    assert content(tmp_path / "out", kind) == content(tmp_path / "whole", kind)
    assert (facts(done), done.warnings) == (facts(whole), whole.warnings)


def _a_file_gone(work: Path) -> None:
    min(work.rglob("*.parquet")).unlink()


def _a_file_cut(work: Path) -> None:
    os.truncate(min(work.rglob("*.parquet")), 100)


def _all_files_gone(work: Path) -> None:
    shutil.rmtree(work / "tree")
    (work / "tree").mkdir()


def _a_mark_cut(work: Path) -> None:
    mark = min((work / "marks").iterdir())
    os.truncate(mark, mark.stat().st_size - 5)


def _a_mark_spoilt(work: Path) -> None:
    mark = min((work / "marks").iterdir())
    lines = mark.read_bytes().splitlines(keepends=True)
    assert len(lines) > 1
    mark.write_bytes(b"".join([lines[0].replace(b"position", b"posision"), *lines[1:]]))


def _a_mark_with_other_bytes(work: Path) -> None:
    mark = min((work / "marks").iterdir())
    mark.write_bytes(b"\xff" + mark.read_bytes()[1:])


def _other_files(work: Path) -> None:
    found = min(work.rglob("*.parquet"))
    shutil.copy(found, found.with_name("part-x.parquet"))


@pytest.mark.parametrize(
    ("spoil", "kept"),
    [
        (_a_file_gone, 2),
        (_a_file_cut, 2),
        (_all_files_gone, 0),
        (_a_mark_cut, 2),
        (_a_mark_spoilt, 2),
        (_a_mark_with_other_bytes, 2),
        (_other_files, 3),
    ],
)
def test_marks_without_what_they_vouch_for(store: Path, tmp_path: Path, spoil: Callable[[Path], None], kept: int) -> None:
    """A segment is done when its files are there, and no file counts that no mark names."""
    spoil(stopped(store, tmp_path / "out", kind="all"))
    done = rr.export(store, to=tmp_path / "out", format="parquet", kind="all", resumable=True)
    assert done.resumed == kept
    rr.export(store, to=tmp_path / "whole", format="parquet", kind="all")
    assert content(tmp_path / "out", "parquet") == content(tmp_path / "whole", "parquet")


def log_of(place: Path, bodies: list[bytes]) -> None:
    with LogWriter(place / "commitlog", 1 << 12) as writer:
        for number, body in enumerate(bodies):
            writer.append(Message(topic="T", queue_id=0, body=body, store_timestamp=EPOCH + number))


@pytest.mark.parametrize("times", [False, True])
def test_a_segment_that_was_written_to_meanwhile(tmp_path: Path, *, times: bool) -> None:
    """It is read again, also where its time does not tell that somebody wrote to it."""
    store, bodies = tmp_path / "store", [b"%03d" % number * 100 for number in range(24)]
    log_of(store, bodies)
    work = stopped(store, tmp_path / "out", "jsonl", marks=2)
    segments = sorted((store / "commitlog").iterdir())
    before = [path.stat().st_mtime_ns for path in segments]
    assert len(list((work / "marks").iterdir())) == 2 < len(segments)
    # What came behind is longer by some messages, and the first segment is another one.
    shutil.rmtree(store)
    log_of(store, [b"new" * 100, *bodies[1:], b"more" * 100])
    if not times:
        for path, modified in zip(segments, before, strict=False):
            os.utime(path, ns=(modified, modified))
    done = rr.export(store, to=tmp_path / "out", resumable=True)
    rows = [json.loads(line)["body"].encode() for line in (tmp_path / "out").read_text().splitlines()]
    assert rows == [b"new" * 100, *bodies[1:], b"more" * 100]
    assert done.resumed == (0 if times else 1)
    assert done.warnings[0] == f"segment {segments[0].name}: was changed since it was exported: it is read again"


def test_messages_that_were_appended_to_the_last_segment(tmp_path: Path) -> None:
    store, bodies = tmp_path / "store", [b"%03d" % number * 100 for number in range(9)]
    log_of(store, bodies)
    (segment, *_), count = sorted((store / "commitlog").iterdir(), reverse=True), len(list((store / "commitlog").iterdir()))
    stopped(store, tmp_path / "out", "jsonl", marks=count)
    modified = segment.stat().st_mtime_ns
    shutil.rmtree(store)
    log_of(store, [*bodies, b"more" * 100])
    assert len(list((store / "commitlog").iterdir())) == count
    os.utime(segment, ns=(modified, modified))
    done = rr.export(store, to=tmp_path / "out", resumable=True)
    assert (done.messages, done.resumed) == (10, count - 1)
    assert done.warnings == [f"segment {segment.name}: was changed since it was exported: it is read again"]


@pytest.mark.parametrize("stale", [False, True])
def test_messages_that_were_appended_behind_others(tmp_path: Path, *, stale: bool) -> None:
    """Where the reading ended does not depend on what was asked for, nor on old records behind the log's end."""

    def written(name: str, topics: str, first: int = 0) -> bytes:
        with LogWriter(tmp_path / name, 1 << 15, first) as writer:
            for at, topic in enumerate(topics):
                writer.append(Message(topic=topic, queue_id=0, body=b"%03d" % at * 100, store_timestamp=EPOCH + at))
        return (tmp_path / name / f"{first:020d}").read_bytes()

    before, after = written("before", "T" + "U" * 30), written("after", "T" + "U" * 30 + "T")
    end = len(after.rstrip(b"\0")) + 100
    # A broker that uses the file of an expired segment again leaves what was in it.
    behind = written("expired", "T" * 60, 1 << 20)[end:] if stale else bytes(len(after) - end)
    place = tmp_path / "store" / "commitlog" / f"{0:020d}"
    place.parent.mkdir(parents=True)
    place.write_bytes(before[:end] + behind)
    modified = place.stat().st_mtime_ns
    stopped(tmp_path / "store", tmp_path / "out", "jsonl", marks=1, topic="T")
    place.write_bytes(after[:end] + behind)
    os.utime(place, ns=(modified, modified))
    done = rr.export(tmp_path / "store", to=tmp_path / "out", topic="T", resumable=True)
    assert (done.messages, done.resumed, done.damaged) == (2, 0, 0)
    assert done.warnings[-1] == f"segment {place.name}: was changed since it was exported: it is read again"
    assert len(done.warnings) == 1 + stale


def test_a_segment_that_has_expired(store: Path, tmp_path: Path) -> None:
    """What is published is what the log has now: what is left out for it is told."""
    shutil.copytree(store, tmp_path / "store")
    stopped(tmp_path / "store", tmp_path / "out", "parquet", kind="all")
    first = min((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    done = rr.export(tmp_path / "store", to=tmp_path / "out", format="parquet", kind="all", resumable=True)
    whole = rr.export(tmp_path / "store", to=tmp_path / "whole", format="parquet", kind="all")
    told = f"segment {first.name}: is in the log no more: what was exported of it is left out"
    assert (facts(done), sorted(done.warnings), done.resumed) == (facts(whole), sorted([*whole.warnings, told]), 2)
    assert content(tmp_path / "out", "parquet") == content(tmp_path / "whole", "parquet")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"kind": "message"}, "kinds"),
        ({"topic": ["T*"]}, "topics"),
        ({"format": "jsonl"}, "format"),
        ({"body": "none"}, "body"),
        ({"sql": "a = 1", "key": ["k"]}, "keys and sql"),
        ({"since": 100_000_000_000}, "since"),
    ],
)
def test_other_options_are_refused(store: Path, tmp_path: Path, other: dict[str, Any], told: str) -> None:
    work = stopped(store, tmp_path / "out", marks=1, kind="all")
    given: dict[str, Any] = {"format": "parquet", "kind": "all", "resumable": True, **other}
    with pytest.raises(InputError, match=f"the export that was stopped there is another one, by its {told}: give what it was"):
        rr.export(store, to=tmp_path / "out", **given)
    shutil.copytree(store, tmp_path / "copy")
    with pytest.raises(InputError, match="by its store: give what it was"):
        rr.export(tmp_path / "copy", to=tmp_path / "out", format="parquet", kind="all", resumable=True)
    with pytest.raises(InputError, match="an export with resumable=True was stopped there: give resumable=True to go on"):
        rr.export(store, to=tmp_path / "out", format="parquet", kind="all")
    assert work.is_dir()
    assert not (tmp_path / "out").exists()
    rr.export(store, to=tmp_path / "out", format="parquet", kind="all", resumable=True)


def test_paths_are_those_of_the_folder_where_the_run_was_started(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words name another store elsewhere; and other words the same one."""
    monkeypatch.chdir(store.parent)
    stopped(Path(store.name), tmp_path / "out", kind="all")
    shutil.copytree(store, tmp_path / "elsewhere" / store.name)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="the export that was stopped there is another one, by its store"):
        rr.export(store.name, to=tmp_path / "out", format="parquet", kind="all", resumable=True)
    assert rr.export(store, to=tmp_path / "out", format="parquet", kind="all", resumable=True).resumed == 3


def test_a_folder_that_is_not_ours(store: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".out.rmq-reindex-work").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is no folder of yours: remove it"):
        rr.export(store, to=tmp_path / "out", resumable=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_export_of_nothing_leaves_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is written without allow_empty=True"):
        rr.export(store, to=tmp_path / "out", topic="none", resumable=True)
    assert not list(tmp_path.iterdir())


def test_what_is_refused_leaves_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        rr.export(tmp_path / "none", to=tmp_path / "out", resumable=True)
    with pytest.raises(UsageError, match="name another folder"):
        rr.export(store, to=tmp_path / "out#", format="iceberg", resumable=True)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_interrupted(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how to go on."""
    rename = os.rename

    def interrupted(old: str, new: str) -> None:
        rename(old, new)
        if os.path.basename(os.path.dirname(new)) == "marks":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        done = running_here.run_export(
            lambda: options.parse_export([str(store), "--to", str(tmp_path / "out"), "--resumable"]),
            Interrupts(install=False), quiet=True,
        )  # fmt: skip
    assert done.result.error == "interrupted: nothing was published: the same command goes on from here"
    assert rr.export(store, to=tmp_path / "out", resumable=True).resumed == 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_another_run_that_ends_while_this_one_begins(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """It is not written over, and no work is left that nobody goes on with."""
    locked = output.locked

    def late(target: str) -> contextlib.AbstractContextManager[None]:
        with monkeypatch.context() as patch:
            patch.setattr(output, "locked", locked)
            rr.export(store, to=target, format=kind, topic="T*", allow_empty=True, resumable=True)
        return locked(target)

    with monkeypatch.context() as patch:
        patch.setattr(output, "locked", late)
        with pytest.raises(InputError, match=r"is there already|is not empty: name another folder"):
            rr.export(store, to=tmp_path / "out", format=kind, kind="all", resumable=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    rr.export(store, to=tmp_path / "other", format=kind, topic="T*", allow_empty=True)
    assert content(tmp_path / "out", kind) == content(tmp_path / "other", kind)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_run_that_is_interrupted_while_it_tidies_up(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """It does not say that nothing was published."""

    def interrupted(_: tasks.Work) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tasks.Work, "remove", interrupted)
        done = running_here.run_export(
            lambda: options.parse_export([str(store), "--to", str(tmp_path / "out"), "--format", kind, "--resumable"]),
            Interrupts(install=False), quiet=True,
        )  # fmt: skip
    assert (done.result.error, done.result.to) == ("interrupted", str(tmp_path / "out"))
    rr.export(store, to=tmp_path / "whole", format=kind)
    assert content(tmp_path / "out", kind) == content(tmp_path / "whole", kind)
    with pytest.raises(InputError, match=r"is there already|is not empty: name another folder"):
        rr.export(store, to=tmp_path / "out", format=kind, resumable=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]


@pytest.mark.parametrize("other", [{"count": True}, {"format": "store"}])
def test_what_cannot_be_resumed(store: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="resumable=True does not go with "):
        rr.export(store, to=tmp_path / "out", resumable=True, **other)
