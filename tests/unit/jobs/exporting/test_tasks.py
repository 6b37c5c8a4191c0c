"""An export by tasks: whatever is chosen, whoever is late, and where a worker lacks the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any, Final

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.api import keywords as api_keywords
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.exporting.options import ExportResult, export_settings
from rocketmq_reindex.jobs.exporting.run import Export
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.udfs.exporting import sinks
from rocketmq_reindex.udfs.exporting.segments import SharedFolder
from rocketmq_reindex.udfs.handover import Batches
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import random_log

SEGMENT: Final = 1 << 15
NOBODY: Final = 65534
HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store of several segments, one of them damaged, with messages that a group has not been given."""
    place = tmp_path_factory.mktemp("tasks") / "store"
    random_log(place / "commitlog", 31, records=200, segment_size=SEGMENT)
    with open(sorted((place / "commitlog").iterdir())[1], "r+b") as segment:
        segment.seek(SEGMENT // 2)
        segment.write(b"\xff" * 300)
    return place


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store with messages that nobody has decided, consumed or could consume."""
    place = tmp_path_factory.mktemp("waiting") / "store"
    with LogWriter(place / "commitlog", SEGMENT) as writer:
        for number in range(60):
            topic = ("Orders", "%RETRY%billing", "%DLQ%billing", HALF)[number % 4]
            properties = {"REAL_TOPIC": "Orders", "RETRY_TOPIC": "Orders", "UNIQ_KEY": f"key-{number}", "amount": str(number)}
            properties["TAGS"] = "even" if number % 8 else "odd"
            body = b"body %d " % number + b"x" * 2000
            writer.append(Message(topic=topic, body=body, properties=properties))
    (place / "config").mkdir()
    offsets = {"Orders@billing": {"0": 7}, "%RETRY%billing@billing": {"0": 3}}
    (place / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return place


def by_tasks(engine: Engine, store: Path | None, **keywords: Any) -> ExportResult:
    """Exports by the tasks of an engine."""

    @contextlib.contextmanager
    def engines() -> Iterator[Engine]:
        yield engine

    settings = export_settings(api_keywords.given("export", {"store": store, **keywords}))
    result = ExportResult()
    Export(settings, result, Listener()).run(engines)
    return result


class Listener:
    """Learns of the progress, and forgets it."""

    def begin(self, stage: str, size: int) -> None:
        pass

    def moved(self, size: int) -> None:
        assert size >= 0

    def end(self) -> None:
        pass


def said(done: ExportResult) -> dict[str, Any]:
    return {name: value for name, value in done.to_dict().items() if name not in ("to", "seconds")}


CHOICES: Final[tuple[dict[str, Any], ...]] = (
    {"undecided": True},
    {"unconsumed_by": "billing"},
    {"dlq": "billing"},
    {"sql": "amount > 20 AND TAGS = 'even'"},
    {"regex": "body [0-9]*7 ", "kind": "all"},
    {"key": ["key-4", "key-8"], "body": "none"},
)


@pytest.mark.parametrize("chosen", CHOICES, ids=lambda chosen: next(iter(chosen)))
def test_what_is_chosen(waiting: Path, tmp_path: Path, chosen: dict[str, Any]) -> None:
    done = by_tasks(InlineEngine(), waiting, to=tmp_path / "tasks.jsonl", **chosen)
    local = rr.export(waiting, to=tmp_path / "local.jsonl", **chosen)
    assert done.messages > 0
    assert said(done) == said(local)
    assert (tmp_path / "tasks.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()
    assert said(by_tasks(InlineEngine(), waiting, count=True, **chosen)) == said(rr.export(waiting, count=True, **chosen))
    with pytest.raises(InputError, match="no message of the log is as was asked for"):
        by_tasks(InlineEngine(), waiting, to=tmp_path / "nothing", topic="none", **({**chosen, "dlq": None, "kind": None}))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["local.jsonl", "tasks.jsonl"]


class FailingError(Exception):
    """A task has failed."""


class Failing(InlineEngine):
    """Loses the tasks behind the first ``good`` ones of a stage."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self._good = good

    def numbers(self, function: Batches, count: int) -> list[str]:
        texts = super().numbers(function, min(count, self._good))
        if count > self._good:
            raise FailingError
        return texts


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_resumable_export_goes_on_by_either_engine(store: Path, tmp_path: Path, kind: Any) -> None:
    wanted: dict[str, Any] = {"format": kind, "kind": "all", "resumable": True}
    whole = rr.export(store, to=tmp_path / "whole", **wanted)
    count = len(list((store / "commitlog").iterdir()))
    assert count > 3
    for first, last in ((2, None), (2, InlineEngine()), (0, Failing(count))):
        to = tmp_path / "out"
        with pytest.raises(FailingError):
            by_tasks(Failing(first), store, to=to, **wanted)
        assert not to.exists()
        done = rr.export(store, to=to, **wanted) if last is None else by_tasks(last, store, to=to, **wanted)
        assert done.resumed == first
        assert {**said(done), "resumed": 0} == said(whole)
        assert files(to) == files(tmp_path / "whole")
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out") and path.is_dir()]
        remove(to)


def files(place: Path) -> dict[str, bytes]:
    paths = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}


def remove(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True) if place.is_dir() else []:
        path.rmdir() if path.is_dir() else path.unlink()
    place.rmdir() if place.is_dir() else place.unlink()


class Twice(InlineEngine):
    """Runs each task twice, without a mark of the first time, and once more with one. Keeps the last function."""

    function: Any = None

    def numbers(self, function: Batches, count: int) -> list[str]:
        self.function = function
        super().numbers(function, count)
        for mark in Path(self.function.place.marks).iterdir():
            mark.unlink()
        return super().numbers(function, count) + super().numbers(function, count)


@pytest.mark.parametrize("kind", ["csv", "parquet", "store"])
def test_a_second_attempt_changes_nothing(store: Path, tmp_path: Path, kind: Any) -> None:
    wanted: dict[str, Any] = {"format": kind}
    engine = Twice()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketmq_reindex.jobs.exporting.new_store.LocalEngines", _Inline)
        done = by_tasks(engine, store, to=tmp_path / "out", **wanted)
        once = by_tasks(InlineEngine(), store, to=tmp_path / "once", **wanted)
    assert said(done) == said(once)
    assert files(tmp_path / "out") == files(tmp_path / "once")
    # One that is late finds nothing, and makes nothing.
    before = sorted(tmp_path.rglob("*"))
    late = engine.function
    with pytest.raises(InputError, match="does not see the folder"):
        InlineEngine().numbers(late, 1)
    with pytest.raises(FileNotFoundError):
        late._export(late.log.plan[0])
    assert sorted(tmp_path.rglob("*")) == before


class Outlived(InlineEngine):
    """An attempt of the last segment's task is about to give its files their names as this stage ends.

    It ends well, and then calls ``then``; without one its driver ends.
    """

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._then = then
        self._is_there, self._may_go_on = threading.Event(), threading.Event()
        self._task: Any = None

    def numbers(self, function: Batches, count: int) -> list[str]:
        late: Any = function
        assert count
        settle = late.place.settle

        def waits(*given: str) -> None:
            self._is_there.set()
            self._may_go_on.wait()
            settle(*given)

        def export() -> None:
            object.__setattr__(late.place, "settle", waits)
            with contextlib.suppress(OSError, InputError):
                late._export(late.log.plan[-1])

        self._task = threading.Thread(target=export)
        self._task.start()
        self._is_there.wait()
        if self._then is None:
            raise FailingError
        found = super().numbers(dataclasses.replace(late, place=dataclasses.replace(late.place)), count)
        self._then()
        return found

    def goes_on(self) -> None:
        self._may_go_on.set()
        self._task.join()


def test_a_task_that_outlives_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has grown, and the local engine goes on: what the task read before that must not take the place of it all."""
    store, bodies = tmp_path / "store", [b"%03d" % number * 100 for number in range(10)]
    engine = Outlived()
    log_of(store, bodies[:9])
    with pytest.raises(FailingError):
        by_tasks(engine, store, to=tmp_path / "out", resumable=True)
    log_of(store, bodies)
    goes_on_amid_the_last_segment(engine, store, monkeypatch)
    done = rr.export(store, to=tmp_path / "out", resumable=True)
    assert (bodies_of(tmp_path / "out"), done.messages, done.warnings) == (bodies, 10, [])


def test_an_attempt_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one was in time, and then somebody else wrote the log anew: the driver reads it again, and nobody else."""
    store, bodies = tmp_path / "store", [b"%03d" % number * 100 for number in range(10)]
    engine = Outlived(lambda: log_of(store, bodies))
    log_of(store, [b"old" * 100] * 10)
    goes_on_amid_the_last_segment(engine, store, monkeypatch)
    done = by_tasks(engine, store, to=tmp_path / "out")
    assert (bodies_of(tmp_path / "out"), done.messages) == (bodies, 10)
    assert [warning.partition(": ")[2] for warning in done.warnings] == [
        "was changed since it was exported: it is read again" for _ in (store / "commitlog").iterdir()
    ]


def goes_on_amid_the_last_segment(engine: Outlived, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the late attempt go on as the driver has written the last segment, whose mark is missing yet."""
    end, last, driver = sinks.PiecesSink.end, max(path.name for path in (store / "commitlog").iterdir()), get_ident()

    def slow(sink: sinks.PiecesSink) -> list[sinks.WrittenFile]:
        made = end(sink)
        if made[0].path.endswith(f"/tree/{last}") and "/attempts/" not in made[0].path and get_ident() == driver:
            engine.goes_on()
        return made

    monkeypatch.setattr(sinks.PiecesSink, "end", slow)


def bodies_of(place: Path) -> list[bytes]:
    return [json.loads(line)["body"].encode() for line in place.read_text().splitlines()]


def log_of(place: Path, bodies: list[bytes]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    with LogWriter(place / "commitlog", 1 << 12) as writer:
        for body in bodies:
            writer.append(Message(topic="T", queue_id=0, body=body))


class Distant(InlineEngine):
    """Its workers have other disks: another run has written the file by which they know the driver's."""

    is_here = False
    seen = 0

    def numbers(self, function: Batches, count: int) -> list[str]:
        self.seen += 1
        return super().numbers(dataclasses.replace(function, **self.otherwise(function)), count)  # type: ignore[type-var]

    def otherwise(self, function: Any) -> dict[str, Any]:
        return {"place": dataclasses.replace(function.place, token="another")}


class Logless(Distant):
    """Its workers lack the log, or the last of its folders."""

    def otherwise(self, function: Any) -> dict[str, Any]:
        return {"segments": (*function.segments[:-1], "/no/such/segment")}


@pytest.mark.parametrize("resumable", [False, True])
def test_workers_without_the_disk_are_found_before_the_work(store: Path, tmp_path: Path, resumable: bool) -> None:
    engine = Distant()
    with pytest.raises(InputError, match=r"--to \S+/out: the worker on \S+ does not see the folder .* or give --engine local"):
        by_tasks(engine, store, to=tmp_path / "out", resumable=resumable)
    assert engine.seen == 1
    for keywords in ({"to": tmp_path / "out", "resumable": resumable}, {"count": True}):
        with pytest.raises(InputError, match=r"^/no/such/segment: is not there for the worker on "):
            by_tasks(Logless(), store, **keywords)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir() if not resumable] == []


def test_each_folder_of_the_log_is_looked_for(store: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for number, segment in enumerate(sorted((store / "commitlog").iterdir())):
        folders[number > 1].mkdir(exist_ok=True)
        shutil.copy(segment, folders[number > 1])
    engine = Logless()
    with pytest.raises(InputError, match=r"^/no/such/segment: is not there for the worker on "):
        by_tasks(engine, None, commitlog=folders, count=True)
    assert engine.seen == 1
    assert by_tasks(InlineEngine(), None, commitlog=folders, count=True).messages > 0


def test_a_worker_of_another_user(tmp_path: Path) -> None:
    """It may not look into the folder of a resumable export: the disk is the same all the same."""
    place = SharedFolder("out", "root", "root/tree", "token", "jsonl")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        # What lies around it is not for nobody.
        os.chdir(tmp_path)
        os.mkdir("root")
        place.make()
        os.chmod("root", 0)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        try:
            place.check()
        except InputError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert re.fullmatch(r"--to out: the worker on \S+ may not write there: run it as the driver's user, .*", answer.read())
    os.waitpid(child, 0)
    (tmp_path / "root").chmod(0o700)


def test_what_is_refused_before_a_session_starts(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: Any, **__: Any) -> Any:
        raise AssertionError("a session starts")

    monkeypatch.setattr("rocketmq_reindex.jobs.api.running_here.engines_ahead", starts)
    (tmp_path / "there").write_text("")
    for place, keywords in ((store, {"to": tmp_path / "there"}), (tmp_path / "none", {"count": True})):
        with pytest.raises(InputError):
            rr.export(place, engine="spark", **keywords)


def test_which_engine(store: Path) -> None:
    for keywords in ({"engine": "local", "master": "local[2]"}, {"engine": "local", "spark": object()}, {"engine": "none"}):
        with pytest.raises(UsageError):
            rr.export(store, count=True, **keywords)


class _Inline:
    """Stands for ``LocalEngines``."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        yield InlineEngine()
