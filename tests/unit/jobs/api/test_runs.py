"""Functions of the Python API beside the commands: the same results and errors, but nothing printed, and handlers as before."""

from __future__ import annotations

import datetime as dt
import json
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.spark import engine, session
from tests.golden.stores import GoldenStore
from tests.tools import spoil
from tests.tools.local_engine import InlineEngine, single

Stores = Callable[[str], GoldenStore]
TIMES = ("seconds", "started", "beside")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs work in this process: what the API adds to them is the same with Spark."""
    import contextlib

    monkeypatch.setattr(engine, "SparkEngines", lambda *_, **__: single(InlineEngine()))
    monkeypatch.setattr(session, "starting", lambda *_, **__: contextlib.nullcontext())


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """No call leaves another handler."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in signals]
    yield
    assert [signal.getsignal(number) for number in signals] == before


@pytest.fixture
def store(golden_store: Stores) -> GoldenStore:
    return golden_store("trimmed-head")


def sizes(store: GoldenStore) -> dict[str, Any]:
    return dict(store.sizes())


def words(store: GoldenStore) -> list[str]:
    return [f"--{name.replace('_', '-')}={size}" for name, size in store.sizes().items()]


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in TIMES}


def test_a_build(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rr.build(store.path, out=tmp_path / "api", **sizes(store))
    assert capsys.readouterr() == ("", "")
    assert main(["build", str(store.path), "--out", str(tmp_path / "command"), *words(store), "--json"]) == result.exit_status
    printed = json.loads(capsys.readouterr().out)
    found = result.to_dict()
    assert list(found) == list(printed)
    assert without_times(found) == without_times(printed)
    files = [{p.relative_to(tmp_path / of): p.read_bytes() for p in sorted((tmp_path / of).rglob("*")) if p.is_file()}
             for of in ("api", "command")]  # fmt: skip
    assert files[0] == files[1]
    assert str(result).startswith("read ")
    assert repr(result).startswith("<BuildResult exit_status=0, read: ")
    assert "<caption>BuildResult</caption>" in result._repr_html_()
    with pytest.raises(AttributeError):
        result.records = 1


def test_progress_is_shown_where_it_is_asked_for(
    store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rr.build(store.path, out=tmp_path / "out", progress=True, **sizes(store))
    printed = capsys.readouterr()
    assert (printed.out, "scan: done after" in printed.err) == ("", True)


def test_a_dry_run(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rr.build(store.path, out=tmp_path / "out", dry_run=True, **sizes(store))
    assert capsys.readouterr() == ("", "")
    assert main(["build", str(store.path), "--out", str(tmp_path / "out"), *words(store), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{result}\n"
    assert not (tmp_path / "out").exists()


def test_the_plan_of_a_dry_run_comes_before_its_warnings(
    store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["build", str(store.path), "--out", str(tmp_path / "out"), *words(store), "--until-offset", "9999"]
    assert main([*arguments, "--dry-run"]) == 0
    plan, warnings = capsys.readouterr()
    assert main([*arguments, "--dry-run", "--json"]) == 0
    printed = capsys.readouterr()
    assert warnings.startswith("warning: ")
    assert printed.err == plan + warnings
    assert json.loads(printed.out)["exit"] == 0


def test_what_a_command_refuses_is_an_error_with_its_status(store: GoldenStore, tmp_path: Path) -> None:
    damaged = spoil.copy_store(store.path, tmp_path / "damaged")
    spoil.flip_body(damaged, 700)
    with pytest.raises(rr.RefusedError) as refused:
        rr.build(damaged, out=tmp_path / "out", **sizes(store))
    assert refused.value.exit_status == 5
    result = refused.value.result
    assert isinstance(result, rr.BuildResult)
    assert (result.exit_status, len(result.damage)) == (5, 1)
    salvaged = rr.build(damaged, out=tmp_path / "out", on_damage="salvage", **sizes(store))
    assert salvaged.exit_status == 3


@pytest.mark.parametrize(
    "keywords",
    [
        {"on_damage": "ignore"},
        {"cq_file_size": 25},
        {"cq_file_size": True},
        {"cq_file_size": "many"},
        {"only": ()},
        {"until_time": dt.datetime(2026, 1, 1)},  # noqa: DTZ001  that is what is refused
        {"recheck": True},
        {"out": None},
        {"out": ["a", "b"]},
        {"lmq": "no"},
        {"include_topic": b"A"},
        {"only": 3},
    ],
)
def test_wrong_usage(store: GoldenStore, tmp_path: Path, keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rr.UsageError) as wrong:
        rr.build(store.path, **{"out": tmp_path / "out", **sizes(store), **keywords})
    assert wrong.value.exit_status == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "call",
    [
        lambda: rr.inspect(None),  # type: ignore[arg-type]
        lambda: rr.inspect(["a", "b"]),  # type: ignore[arg-type]
        lambda: rr.report(None),  # type: ignore[arg-type]
        lambda: rr.fetch("built", to=None),  # type: ignore[arg-type]
        lambda: rr.query("store", physical=0, scan="no"),  # type: ignore[arg-type]
        lambda: rr.options("query", "--key x"),  # type: ignore[arg-type]
    ],
)
def test_values_that_no_function_takes(call: Callable[[], object]) -> None:
    with pytest.raises(rr.UsageError):
        call()


def test_an_error_of_the_system_is_one_of_the_package(store: GoldenStore, tmp_path: Path) -> None:
    with pytest.raises(rr.ReindexError, match="metrics") as refused:
        rr.build(store.path, out=tmp_path / "out", metrics=tmp_path / "out" / "metrics", **sizes(store))
    assert refused.value.exit_status == 1
    with pytest.raises(rr.InputError, match="is not there"):
        rr.build(tmp_path / "none", out=tmp_path / "out")


def test_an_interrupt_cleans_up_and_passes_on(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InlineEngine, "reduce", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rr.build(store.path, out=tmp_path / "out", **sizes(store))
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_that_py4j_turned_into_its_own_error(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SparkContext's handler calls the JVM while py4j waits for it: what comes out is no KeyboardInterrupt."""

    def of_spark(*_: object) -> None:
        raise Py4JError("An error occurred while calling o7.sc")

    monkeypatch.setattr(InlineEngine, "reduce", lambda *_: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, of_spark)
    try:
        with pytest.raises(KeyboardInterrupt):
            rr.build(store.path, out=tmp_path / "out", **sizes(store))
        assert signal.getsignal(signal.SIGINT) == of_spark
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_raises_nothing_lets_the_run_go_on(
    store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce, seen = InlineEngine.reduce, list[int]()

    def signalled(*arguments: Any) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return reduce(*arguments)

    monkeypatch.setattr(InlineEngine, "reduce", signalled)
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        assert rr.build(store.path, out=tmp_path / "out", **sizes(store)).exit_status == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(seen) == {signal.SIGINT}
    assert logging.root.manager.disable == logging.NOTSET


def test_a_verify(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rr.build(store.path, out=tmp_path / "built", **sizes(store))
    log = store.path / "commitlog"
    clean = rr.verify(tmp_path / "built", commitlog=log)
    assert (clean.exit_status, clean.findings, clean.mend) == (0, [], None)
    max((tmp_path / "built" / "index").iterdir()).unlink()
    differs = rr.verify(tmp_path / "built", commitlog=log, report=tmp_path / "verify.json")
    assert capsys.readouterr() == ("", "")
    assert differs.exit_status == 4
    assert main(["verify", str(tmp_path / "built"), "--commitlog", str(log), "--json"]) == 4
    printed, found = json.loads(capsys.readouterr().out), differs.to_dict()
    assert list(found) == list(printed)
    assert without_times(found) == without_times(printed)
    page = rr.report(tmp_path / "verify.json", out=tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size == page.bytes
    assert str(page) == f"wrote    {tmp_path}/page.html, {page.bytes:,} bytes"


def test_a_fetch(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rr.build(store.path, out=tmp_path / "built", **sizes(store))
    for name in ("api", "command"):
        spoil.copy_store(store.path, tmp_path / name)
    result = rr.fetch(tmp_path / "built", to=tmp_path / "api")
    assert capsys.readouterr() == ("", "")
    assert main(["fetch", str(tmp_path / "built"), "--to", str(tmp_path / "command"), "--json"]) == 0
    printed, found = json.loads(capsys.readouterr().out), result.to_dict()
    assert list(found) == list(printed)
    assert {**without_times(found), "to": ""} == {**without_times(printed), "to": ""}
    with pytest.raises(rr.InputError, match="is not a folder"):
        rr.fetch(tmp_path / "built", to=tmp_path / "none")
    with pytest.raises(rr.UsageError, match="take 1 to"):
        rr.fetch(tmp_path / "built", to=tmp_path / "api", threads=0)


def test_a_query(store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    whole = store.path / "rebuilt"
    log = store.path / "commitlog"
    first = min(int(path.name) for path in (store.path / "commitlog").iterdir())
    found = rr.query(whole, physical=first, commitlog=log)
    if not found:
        pytest.skip("the log's first record is not a message")
    assert capsys.readouterr() == ("", "")
    option = ["--commitlog", str(store.path / "commitlog")]
    assert main(["query", str(whole), "--physical", str(first), *option, "--json"]) == 0
    assert found[0].to_dict() == json.loads(capsys.readouterr().out)
    message = found[0]
    assert (message.phy_offset, len(found), [*found]) == (first, 1, [message])
    assert (message.topic, message.queue_id) == (message["topic"], message["queueId"])
    in_queue = rr.query(whole, topic=message.topic, queue=message.queue_id, offset=message.queue_offset, max=3, commitlog=log)
    assert [each.queue_offset for each in in_queue] == [message.queue_offset + k for k in range(len(in_queue))]
    time = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    by_time = rr.query(whole, topic=message.topic, queue=message.queue_id, time=time, commitlog=log)
    assert len(by_time) == 1
    assert main(["query", str(whole), "--physical", str(first), *option]) == 0
    assert capsys.readouterr().out == f"{found}\n"
    none = rr.query(whole, topic=message.topic, key="no such key", commitlog=log)
    assert (len(none), none.exit_status, str(none)) == (0, 0, "nothing found")


def test_a_query_that_could_not_read(store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rr.UsageError, match="ask by one of"):
        rr.query(store.path)
    (tmp_path / "consumequeue").mkdir()
    with pytest.raises(rr.InputError, match="nothing found") as lost:
        rr.query(tmp_path, physical=0)
    assert isinstance(lost.value.result, rr.QueryResult)
    assert any("no message can be read" in warning for warning in lost.value.result.warnings)
    with pytest.raises(rr.InputError, match="is not there"):
        rr.query(tmp_path / "none", physical=0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("pattern", ["consumequeue/*/*/*", "index/*", "checkpoint"])
def test_an_inspection(store: GoldenStore, pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = min((store.path / "rebuilt").glob(pattern))
    found = rr.inspect(path, records=True)
    records = list(found.records)
    assert records
    assert list(found.records) == records
    assert capsys.readouterr() == ("", "")
    assert main(["inspect", str(path), "--records", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [found.to_dict(), *records] == printed
    assert main(["inspect", str(path)]) == 0
    assert capsys.readouterr().out == f"{found}\n"
    assert list(rr.inspect(path).records) == []
    with pytest.raises(rr.InputError, match="is not there"):
        rr.inspect(path.with_name("none"))
