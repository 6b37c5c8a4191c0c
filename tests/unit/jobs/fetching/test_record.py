"""What a store remembers of fetches: what lies there as it was laid out, and whose a copy is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching.record import RECORD, Copy, Laid, Record, files_of
from rocketmq_reindex.storage_format.layouts import EARLIER_KIND
from tests.tools.compare import SMALL
from tests.tools.encode import Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter


@pytest.fixture
def part(tmp_path: Path) -> Path:
    for name in ("a/0/x", "a/1/x", "b/0/x"):
        path = tmp_path / "part" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"12345")
        # Of long ago: two writes within one tick of the system's clock have the same time.
        os.utime(path, ns=(10**18, 10**18))
    return tmp_path / "part"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda part: (part / "a/0/x").write_bytes(b"12346"),
    "a time": lambda part: os.utime(part / "a/0/x", ns=(1, 1)),
    "a size": lambda part: os.truncate(part / "a/0/x", 4),
    "a name": lambda part: (part / "a/0/x").rename(part / "a/0/y"),
    "a folder": lambda part: (part / "c").mkdir(),
    "a file in another folder": lambda part: (part / "a/0/x").rename(part / "a/x"),
    "a link": lambda part: (part / "c").symlink_to(part / "a"),
    "gone": lambda part: (part / "b/0/x").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_a_file_shows(change: str, part: Path) -> None:
    before = files_of(str(part))
    part.rename(part.with_name("moved"))
    part.with_name("moved").rename(part)
    assert files_of(str(part)) == before
    CHANGES[change](part)
    assert files_of(str(part)) != before


def test_a_copy_is_known_until_it_is_touched(part: Path) -> None:
    store = str(part.parent)
    copy = Copy.of(str(part), 3)
    assert copy is not None
    record = Record(copies={"part": copy})
    record.write(store, store)
    found = Record.read(store)
    assert found == record
    assert found.is_copy(store, "part")
    (part / "a/0/x").write_bytes(b"of the same copy")
    assert found.is_copy(store, "part")
    before = part.stat().st_ctime_ns
    while part.stat().st_ctime_ns == before:
        part.chmod(0o700)
    assert not found.is_copy(store, "part")
    assert not found.is_copy(store, "other")
    assert Copy.of(f"{store}/none", 1) is None


def test_the_record_is_given_to_the_owner_of_the_log(tmp_path: Path) -> None:
    """Root fetches for a broker that is another user. Anybody else's record is theirs."""
    (tmp_path / "commitlog").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "commitlog", 12345, 23456)
    Record().write(str(tmp_path), str(tmp_path))
    mine, log = (tmp_path / RECORD).stat(), (tmp_path / "commitlog").stat()
    assert (mine.st_uid, mine.st_gid) == (log.st_uid, log.st_gid)


def test_what_lies_behind_a_link_is_no_copy_of_the_store(tmp_path: Path) -> None:
    """Who can write into the store can make a folder of it lead elsewhere, and the record name what lies there."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    for folder in (store / "config", elsewhere):
        folder.mkdir(parents=True)
        (folder / "topics.json.previous").write_bytes(b"{}")
    name = "config/topics.json.previous"
    for leads_elsewhere in (False, True):
        if leads_elsewhere:
            (store / "config").rename(tmp_path / "away")
            (store / "config").symlink_to(elsewhere)
        copy = Copy.of(str(store / name), 1)
        assert copy is not None
        assert Record(copies={name: copy}).is_copy(str(store), name) is not leads_elsewhere


def test_what_is_laid_out(part: Path) -> None:
    store = str(part.parent)
    record = Record(laid={"part": Laid("build", files_of(str(part)))})
    assert record.is_laid(store, ["part"], "build")
    assert not record.is_laid(store, ["part"], "other")
    assert not record.is_laid(store, ["part", "more"], "build")
    record.write(store, store)
    assert Record.read(store) == record


def test_what_an_earlier_version_laid_out(part: Path) -> None:
    """Its record names no kind of digest."""
    store = str(part.parent)
    laid = {"part": {"build": "build", "files": files_of(str(part), EARLIER_KIND)}}
    (part.parent / RECORD).write_text(json.dumps({"format": 1, "laid": laid, "copies": {}}))
    record = Record.read(store)
    assert record.is_laid(store, ["part"], "build")
    record.write(store, store)
    assert Record.read(store) == record
    os.truncate(part / "a/0/x", 4)
    assert not record.is_laid(store, ["part"], "build")


def test_a_kind_of_the_future_is_not_known(part: Path) -> None:
    record = Record(laid={"part": Laid("build", files_of(str(part)), "sum-64")})
    assert not record.is_laid(str(part.parent), ["part"], "build")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", "{", '{"format": 2, "laid": {}, "copies": {}}', '{"format": 1, "laid": {"x": 5}, "copies": {}}',
     '{"format": 1, "laid": {}, "copies": {"x": {"inode": "?", "changed": 1, "fetch": 1}}}', "[" * 100_000, "\xff",
     '{"format": 1, "laid": {}, "copies": {"x": {"inode": 1, "changed": 1, "fetch": Infinity}}}',
     '{"format": 1, "laid": {}, "copies": {"x": {"inode": 1, "changed": 1, "fetch": 9e99}}}',
     '{"format": 1, "laid": {}, "copies": {"x": {"inode": 1, "changed": 1, "fetch": 0}}}'],
)  # fmt: skip
def test_what_is_no_record_knows_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_bytes(text.encode("latin-1"))
    found = Record.read(str(tmp_path))
    assert (found.laid, found.copies, len(found.notes)) == ({}, {}, 1)


def test_a_record_without_end_and_one_that_is_a_pipe(tmp_path: Path) -> None:
    with (tmp_path / RECORD).open("wb") as file:
        file.truncate(1 << 40)
    assert Record.read(str(tmp_path)).notes
    (tmp_path / RECORD).unlink()
    os.mkfifo(tmp_path / RECORD)
    assert Record.read(str(tmp_path)).notes


def test_no_record(tmp_path: Path) -> None:
    assert Record.read(str(tmp_path)) == Record()
    Record().write(str(tmp_path), str(tmp_path))
    assert json.loads((tmp_path / RECORD).read_bytes()) == {"format": 1, "laid": {}, "copies": {}}


def test_a_draft_of_topics_takes_the_place_of_the_stores_own_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    store, topics = tmp_path / "store", tmp_path / "store" / "config" / "topics.json"
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        writer.append(Message())
    assert local_build(store, tmp_path / "out", None, write_topics=True, **SMALL).exit == 0
    topics.parent.mkdir()
    topics.write_text("{}")
    for words, stays in (((), True), (("--topics",), False), ((), False)):
        assert fetch([str(tmp_path / "out"), "--to", str(store), *words]) == 0
        assert ("config/topics.json: the store's own stays, the draft is left out" in capsys.readouterr().err) == stays
        assert (topics.read_text() == "{}") == stays


def test_a_kill_may_leave_the_older_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker reads FILE.bak where FILE is not there; an empty one says nothing."""
    store, topics = tmp_path / "store", tmp_path / "store" / "config" / "topics.json"
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        writer.append(Message())
    assert local_build(store, tmp_path / "out", None, write_topics=True, **SMALL).exit == 0
    older = topics.with_name("topics.json.bak")
    older.parent.mkdir()
    for text, stays in (("{}", True), ("", False)):
        older.write_text(text)
        assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
        told = capsys.readouterr().err
        assert ("config/topics.json.bak: the store's own stays, the draft is left out" in told) == stays
        assert (older.read_text(), topics.exists()) == (text, not stays)
