"""Requests to a bucket that are tried again, answers that were lost, and what is said meanwhile and in the end."""

from __future__ import annotations

import json
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import object_store
from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.publishing import layout, output
from rocketmq_reindex.storage_format.errors import InputError
from tests.fault.disk import tiny_store
from tests.tools.s3_door import CUT, LOST, Refuses, Sought, s3_door, through
from tests.tools.tiers import half

SIZES = ("--cq-file-size", "400", "--hash-slots", "50", "--index-items", "60")
FAULTS = (500, 503, CUT, LOST)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE", 0.005)


class First:
    """Lets the first ``count`` requests of one kind to each path fail; ``asked`` are all of that kind."""

    def __init__(self, kind: str, fault: int, count: int = 2) -> None:
        self.kind, self.fault, self.count, self.asked = kind, fault, count, list[str]()
        self._lock = threading.Lock()

    def __call__(self, sought: Sought) -> int:
        if sought.kind != self.kind:
            return 0
        with self._lock:
            self.asked.append(key := f"{sought.path}?{sorted(sought.query)}")
            return self.fault if self.asked.count(key) <= self.count else 0


def doing(place: str, refuses: Refuses, do: Callable[[str], object]) -> object:
    """What ``do`` returns for the place behind a door."""
    with s3_door(os.environ["AWS_ENDPOINT_URL"], refuses) as (door, _):
        return do(through(place, door))


DATA = random.Random(7).randbytes(11 << 20)
"""Long enough for several parts."""


def _large(place: str) -> None:
    with files.writing(place, files.join(place, "large")) as writer:
        for low in range(0, len(DATA), 1 << 20):
            writer.append(DATA[low : low + (1 << 20)])
        writer.finish()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("kind", "fault"), half(["HEAD", "LIST", "GET", "PUT", "POST", "COPY", "DELETE", "REMOVE"], FAULTS))
def test_each_request_is_tried_again(kind: str, fault: int, s3_place: str) -> None:
    """The small object is shorter than the text of an error: AWS's SDK then knows no reason, and calls it final."""
    place = files.join(s3_place, "x")
    for name in ("one", "two", "dir/a", "dir/b"):
        files.write_bytes(place, files.join(place, *name.split("/")), [b"small"])
    refuses = First(kind, fault)

    def do(place: str) -> None:
        assert files.read_bytes(files.join(place, "one")) == b"small"
        _large(place)
        with files.Reader(files.join(place, "large")) as reader:
            assert reader.read(0, len(DATA)) == DATA
        files.write_bytes(place, files.join(place, "held"), [DATA])
        assert files.copy_in_store(files.join(place, "one"), files.join(place, "copy"))
        files.rename(files.join(place, "two"), files.join(place, "renamed"))
        assert files.remove_tree(files.join(place, "dir")) == ""
        assert files.remove_tree(files.join(place, "one")) == ""
        assert set(files.names(place)) == {"large", "held", "copy", "renamed"}
        assert files.entry_of(files.join(place, "one")).kind == files.ABSENT

    doing(place, refuses, do)
    # A removal that was done is not asked for again.
    assert len(refuses.asked) > (0 if fault in (CUT, LOST) else len(set(refuses.asked)))
    assert files.read_bytes(files.join(place, "large")) == files.read_bytes(files.join(place, "held")) == DATA
    assert files.read_bytes(files.join(place, "renamed")) == files.read_bytes(files.join(place, "copy")) == b"small"


@pytest.mark.usefixtures("short")
def test_a_completed_upload_whose_answer_was_lost_is_whole(s3_place: str) -> None:
    """The second request to complete it is told that there is no such upload: then the file goes again."""
    completed = list[str]()

    def refuses(sought: Sought) -> int:
        if sought.kind != "POST" or "uploadId" not in sought.query:
            return 0
        completed.append(sought.path)
        return LOST if len(completed) < 3 else 0

    doing(s3_place, refuses, _large)
    assert len(completed) >= 3
    assert files.read_bytes(files.join(s3_place, "large")) == DATA
    assert files.names(s3_place) == ["large"]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("query", "operation"), [("uploads", "Create"), ("uploadId", "Complete")])
def test_an_upload_that_was_never_completed_is_none(query: str, operation: str, s3_place: str) -> None:
    """A stream of pyarrow that could not begin its upload sends what it has when it goes: nothing, which is a file."""

    def refuses(sought: Sought) -> int:
        return 403 if sought.kind == "POST" and query in sought.query else 0

    with pytest.raises(OSError, match=rf"Access Denied \(ACCESS_DENIED, {operation}MultipartUpload\)"):
        doing(s3_place, refuses, _large)
    assert files.names(s3_place) == []


def test_a_part_is_waited_for(s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever watches hears of it: the file goes again as a whole."""
    monkeypatch.setattr(object_store, "SELDOM", 0.0)
    refuses, heard = _outage("PUT", "/large", 2.5), list[str]()
    with object_store.heard_by(heard.append):
        doing(s3_place, refuses, _large)
    assert files.read_bytes(files.join(s3_place, "large")) == DATA
    assert heard
    assert all(re.match(r"waiting for s3://logs/\S*/large: .*UploadPart\): try \d+ of 12 in \d\.\d s$", line) for line in heard)


@pytest.mark.usefixtures("short")
def test_a_part_that_never_goes_is_told_in_the_end(s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how often it was tried. No part of the file is there."""
    monkeypatch.setattr(object_store, "_SECONDS", 2.0)
    with pytest.raises(OSError, match=r"UploadPart\) \(tried \d+ times in \d+ s\)") as raised:
        doing(s3_place, _outage("PUT", "/large", math.inf), _large)
    assert raised.value.filename == files.join(s3_place, "large").partition("?")[0]
    assert files.names(s3_place) == []


@pytest.mark.usefixtures("short")
def test_a_lost_answer_publishes_once(s3_place: str) -> None:
    """And the run does not take its own build for one that another run has published."""
    refuses = First("PUT", LOST, 3)

    def publish(out: str) -> None:
        with output.staging(out) as staging:
            files.write_bytes(staging.temporary, files.join(staging.tree, "reindex.json"), [b"{}"])
            output.publish(staging, out, False)

    doing(files.join(s3_place, "out"), refuses, publish)
    assert len([path for path in refuses.asked if "/published/" in path]) == 4
    assert [pointer.number for pointer in layout.pointers(files.join(s3_place, "out"))] == [1]


def test_a_slow_first_byte_is_waited_for(s3_place: str) -> None:
    """pyarrow's own limit is 3 s, and its next tries are as slow."""
    files.write_bytes(s3_place, files.join(s3_place, "one"), [b"small"])
    asked = list[str]()

    def slow(sought: Sought) -> int:
        asked.append(sought.kind)
        if sought.kind in ("GET", "PUT"):
            time.sleep(3.5)
        return 0

    def do(place: str) -> None:
        assert files.read_bytes(files.join(place, "one")) == b"small"
        files.write_bytes(place, files.join(place, "two"), [b"other"])

    doing(s3_place, slow, do)
    assert (asked.count("GET"), asked.count("PUT")) == (1, 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_time_limit_can_be_set(by: str, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too slow for it is tried again, for a while, and the error names bucket and key."""
    files.write_bytes(s3_place, files.join(s3_place, "one"), [b"small"])
    monkeypatch.setattr(object_store, "_SECONDS", 2.0)
    if by == "environment":
        monkeypatch.setenv("RMQ_REINDEX_REQUEST_TIMEOUT", "1")

    def slow(sought: Sought) -> int:
        if sought.kind == "GET":
            time.sleep(3.5)
        return 0

    def read(place: str) -> bytes:
        place += "&request_timeout=1" if by == "option" else ""
        return files.read_bytes(files.join(place, "one"))

    with pytest.raises(OSError, match="curlCode: 28") as raised:
        doing(s3_place, slow, read)
    assert raised.value.filename == files.join(s3_place, "one").partition("?")[0]
    assert re.search(r"\(tried \d times in \d+ s\)", str(raised.value))


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "1e9"])
def test_a_time_limit_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"request_timeout=.*: takes seconds, from 1 to 3600"):
        files.entry_of(f"s3://logs-{value}/x?request_timeout={value}&endpoint_override=127.0.0.1:1&scheme=http")
    monkeypatch.setenv("RMQ_REINDEX_CONNECT_TIMEOUT", value)
    with pytest.raises(InputError, match=r"RMQ_REINDEX_CONNECT_TIMEOUT=.*: takes seconds"):
        files.entry_of(f"s3://logs{value}/x?endpoint_override=127.0.0.1:1&scheme=http")


@pytest.mark.usefixtures("short")
def test_a_server_that_is_gone_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "SELDOM", 0.0)
    heard = list[str]()
    with object_store.heard_by(heard.append), pytest.raises(OSError, match=r"\(tried 12 times in ") as raised:
        files.entry_of("s3://logs/a/b?endpoint_override=127.0.0.1:1&scheme=http&region=gone")
    assert raised.value.filename == "s3://logs/a/b"
    assert heard
    assert all(re.match(r"waiting for s3://logs/a/b: .*: try \d+ of 12 in \d+\.\d s$", line) for line in heard)


def _outage(kind: str, pattern: str, seconds: float) -> Refuses:
    """503 to all requests of a kind to paths in which ``pattern`` is found, for a while from the first one on."""
    begun = list[float]()

    def refuses(sought: Sought) -> int:
        if sought.kind != kind or not re.search(pattern, sought.path):
            return 0
        begun.append(time.monotonic())
        return 503 if begun[-1] - begun[0] < seconds else 0

    return refuses


@pytest.mark.parametrize(("where", "words", "shows"), [
    ("worker", (), r"^waiting for s3://logs/\S+: Please reduce .* \(SLOW_DOWN, \w+\): try \d+ of 12 in \d\.\d s$"),
    ("driver", ("--progress", "json"), r'^\{"state": "waiting", "text": "waiting for s3://logs/'),
    ("worker", ("--log-format", "json"), r'"level": "WARNING".*"msg": "waiting for s3://logs/.*"event": "waiting"'),
])  # fmt: skip
def test_progress_says_that_a_run_waits(
    where: str, words: tuple[str, ...], shows: str, s3_place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also where a worker of the local engine waits."""
    monkeypatch.setattr(object_store, "SELDOM", 0.0)
    tiny_store(tmp_path / "store")
    for path in (tmp_path / "store" / "commitlog").iterdir():
        files.write_bytes(s3_place, files.join(s3_place, "store", "commitlog", path.name), [path.read_bytes()])
    outage = _outage("LIST", "", 2.5) if where == "driver" else _outage("PUT", "/work/.*/ranges/", 2.5)
    with s3_door(os.environ["AWS_ENDPOINT_URL"], outage) as (door, _):
        store, out = (through(files.join(s3_place, name), door) for name in ("store", "out"))
        assert build([store, "--out", out, "--engine", "local", *SIZES, *words]) == 0
    said = capfd.readouterr().err
    lines = said.splitlines()
    assert [line for line in lines if re.search(shows, line)], said
    if words == ("--log-format", "json"):
        assert all(json.loads(line) for line in lines)
