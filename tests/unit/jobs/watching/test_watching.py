"""Watching a run: progress and messages as JSON, figures for Prometheus; whatever is watched, the run goes on as it does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_reindex.jobs.api.running import make_build, watched_run
from rocketmq_reindex.jobs.building.options import BuildSettings, parse_settings
from rocketmq_reindex.jobs.building.summary import BuildResult, Warnings
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.spark.gateway import JvmErrors
from rocketmq_reindex.jobs.verifying.mend import Mend
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.watching import logs, progress
from rocketmq_reindex.jobs.watching.logs import JsonLines, JsonLog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.jobs.watching.watch import Watch, WatchedRun
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools import spoil
from tests.tools.compare import SMALL, project_settings
from tests.tools.faulty_processes import wait_until
from tests.tools.local_engine import InlineEngine, single
from tests.tools.make_log import FEATURES, random_log

HOSTILE = 'or"ders\\\n# HELP x\x1b[31m'


def objects(text: str) -> list[dict[str, Any]]:
    """Each line as JSON; a hostile name never gets as far as a raw control character."""
    assert text.isascii()
    return [json.loads(line) for line in text.splitlines()]


def samples(path: Path) -> dict[tuple[str, str], float]:
    """{(name without prefix, label that only this metric has): value}"""
    return {
        (s.name.removeprefix("rmq_reindex_"), s.labels.get("stage") or s.labels.get("kind") or ""): s.value
        for family in text_string_to_metric_families(path.read_text())
        for s in family.samples
    }


def watched(settings: BuildSettings, *words: str, meanwhile: Callable[[], None] = lambda: None) -> BuildResult:
    """A build in this process, watched as the command line has it watched. ``meanwhile`` is what another process does."""
    watch = Watch("build", json_log=wants_json_log(words))
    watch.start(watched_run(settings, (*settings.inputs, settings.out), settings.out))
    with watch.reporter() as reporter:
        job = make_build(settings, reporter, single(InlineEngine()))
        job.run()
    meanwhile()
    watch.end(job.result, lines=True, published=job.published)
    return job.result


def test_a_refusal_is_one_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its next steps stand in lines of their own, and are no errors by themselves."""
    settings = BuildSettings(str(tmp_path / "store"), str(tmp_path / "out"))
    watch, summary = Watch("build", json_log=True), BuildResult()
    watch.start(watched_run(settings, ()))
    summary.exit, summary.error = 5, "log: damage\n  repair it\n  or stop before it"
    watch.end(summary, lines=True, published=False)
    errors = [line["msg"] for line in objects(capsys.readouterr().err) if line["context"]["event"] == "error"]
    assert errors == ["log: damage repair it or stop before it"]


def test_stages_for_schedulers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    monkeypatch.setattr(logs, "LINE_INTERVAL", 0.03)
    asked: Counter[str] = Counter()

    monkeypatch.setattr(progress, "_SECONDS", 0.02)

    def probe(name: str, things: int, share: float) -> tuple[int, float]:
        asked[name] += 1
        return things, share

    with Reporter([JsonLines()]) as reporter:
        with reporter.stage("scan", "ranges", 4, 16_000_000, lambda: probe("scan", 1, min(asked["scan"], 4) / 16)):
            # Of which each fourth one at least has a line; the last one asked may have none yet.
            wait_until(lambda: asked["scan"] > 15)
        with contextlib.suppress(OSError), reporter.stage("write", "files", 2, 0, lambda: probe("write", 1, 0)):
            wait_until(lambda: asked["write"] > 1)
            raise OSError("gone")
        with reporter.step("publish"):
            reporter.line("no JSON")
    lines = objects(capsys.readouterr().err)
    for line in lines:
        assert list(line) == ["stage", "state", "done", "total", "things", "bytes", "total_bytes", "seconds", "eta"]
    scan = [line for line in lines if line["stage"] == "scan"]
    assert [line["state"] for line in scan] == ["running"] * (len(scan) - 1) + ["done"]
    assert (scan[0]["done"], scan[0]["eta"]) == (0, None)
    assert {line["done"] for line in scan[1:-1]} == {1}
    assert scan[-2]["bytes"] == 4_000_000
    assert scan[-2]["eta"] > 0, "it has moved often enough, and stands still since: the time left grows"
    assert (scan[-1]["done"], scan[-1]["bytes"], scan[-1]["eta"]) == (4, 16_000_000, 0)
    write = [line for line in lines if line["stage"] == "write"]
    assert (write[-1]["state"], write[-1]["done"]) == ("failed", 1)
    assert {line["stage"] for line in lines} == {"scan", "write"}


def test_numbers_only_rise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tasks leave that are tried again, and whatever of it is removed: never back, never above the total."""
    monkeypatch.setattr(progress, "INTERVAL", 0.001)
    monkeypatch.setattr(logs, "LINE_INTERVAL", 0.0)
    found = iter([(1, 0.1), (3, 0.9), (2, 0.4), (9, 2.0), (4, 1.0)])
    last = (1, 0.01)

    def probe() -> tuple[int, float]:
        nonlocal last
        last = next(found, (0, 0.0))
        return last

    with Reporter([JsonLines()]) as reporter, reporter.stage("write", "files", 4, 100, probe):
        end = time.monotonic() + 60
        while last[0] and time.monotonic() < end:
            time.sleep(0.001)
    told = [(line["done"], line["bytes"]) for line in objects(capsys.readouterr().err)]
    assert told[:6] == [(0, 0), (1, 10), (3, 90), (3, 90), (4, 100), (4, 100)]
    assert set(told[6:]) == {(4, 100)}


def test_a_build_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stages with their counts, each damaged place and each decision with its fields, what was published, the figures."""
    store, out = tmp_path / "store", tmp_path / "out"
    random_log(store / "commitlog", 11, records=300, features=FEATURES)
    spoil.garbage(store, 150, 1)
    settings = BuildSettings(
        str(store), str(out), metrics=str(tmp_path / "m.prom"), **project_settings({**SMALL, "on_damage": "salvage"})
    )
    summary = watched(settings, "--log-format", "json")
    lines = objects(capsys.readouterr().err)
    assert all(list(line) == ["ts", "level", "logger", "msg", "context"] for line in lines)
    told = [line["context"] for line in lines]
    assert len({(c["build"], c["command"]) for c in told}) == 1
    assert re.fullmatch("[0-9a-f]{32}", told[0]["build"])
    events = [c["event"] for c in told]
    assert (events[0], events[-2:]) == ("run-begun", ["published", "run-ended"])
    stages = [(c["event"], c["stage"]) for c in told if "stage" in c]
    names = [name for event, name in stages if event == "stage-ended"]
    assert stages == [(event, name) for name in names for event in ("stage-begun", "stage-ended")]
    assert {"scan", "decide", "write", "finish", "publish"} <= set(names)
    write = next(c for c in told if c["event"] == "stage-ended" and c["stage"] == "write")
    assert (write["units"], write["items"]) == (summary.units, summary.items)
    damage = [{k: c[k] for k in ("segment", "offset", "length", "reason")} for c in told if c["event"] == "damage"]
    decided = [{k: c[k] for k in ("kind", "topic", "queue", "offset", "count")} for c in told if c["event"] == "decision"]
    assert damage == summary.damage != []
    assert decided == summary.decisions
    assert [line["msg"] for line in lines if line["level"] == "WARNING"] == summary.warnings
    assert {k: told[-1][k] for k in ("exit", "bytes", "records", "units", "items", "damaged_places")} == {
        "exit": 3, "bytes": summary.bytes, "records": summary.records, "units": summary.units, "items": summary.items,
        "damaged_places": len(summary.damage),
    }  # fmt: skip
    figures = samples(tmp_path / "m.prom")
    assert figures["exit_status", ""] == 3
    assert figures["last_success_timestamp_seconds", ""] == 0, "damaged parts are missing: that is no success"
    assert figures["damaged_places", ""] == len(summary.damage)
    assert figures["work_seconds", ""] == summary.seconds["build"]
    assert figures["files", "consumequeue"] == summary.files["consumequeue"]


def test_the_last_success_outlives_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, path = tmp_path / "store", tmp_path / "m.prom"
    random_log(store / "commitlog", 12, records=50)
    words = ["--metrics", str(path), "--store-name", HOSTILE]
    began = time.time()
    settings = dataclasses.replace(
        parse_settings([str(store), "--out", str(tmp_path / "out"), *words]), **project_settings({**SMALL})
    )
    watched(settings)
    before = samples(path)
    assert before["exit_status", ""] == 0
    assert began <= before["last_success_timestamp_seconds", ""] == before["last_run_timestamp_seconds", ""]
    assert main(["build", str(tmp_path / "none"), "--out", str(tmp_path / "new"), *words]) == 1
    after = samples(path)
    assert (after["exit_status", ""], after["records", ""]) == (1, 0)
    assert after["last_success_timestamp_seconds", ""] == pytest.approx(before["last_success_timestamp_seconds", ""])
    assert after["last_run_timestamp_seconds", ""] >= before["last_run_timestamp_seconds", ""]
    main(["build", str(tmp_path / "none"), "--out", str(tmp_path / "new"), *words[:2], "--store-name", "another"])
    assert samples(path)["last_success_timestamp_seconds", ""] == 0
    labels = [s.labels for family in text_string_to_metric_families(path.read_text()) for s in family.samples]
    assert {label["store"] for label in labels} == {"another"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.prom", "out", "store"], "nothing half is left"
    assert "none" in capsys.readouterr().err


def test_figures_that_can_no_longer_be_written_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder was there when the run began."""
    store, path = tmp_path / "store", tmp_path / "folder" / "m.prom"
    random_log(store / "commitlog", 13, records=20)
    path.parent.mkdir()
    settings = BuildSettings(str(store), str(tmp_path / "out"), metrics=str(path), **project_settings({**SMALL}))
    summary = watched(settings, meanwhile=path.parent.rmdir)
    assert (summary.exit, summary.error) == (0, None)
    assert (tmp_path / "out" / "reindex.json").exists()
    assert summary.warnings[-1].startswith(f"--metrics {path}: not written: ")
    assert capsys.readouterr().err.splitlines()[-1] == f"warning: {summary.warnings[-1]}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "store"]


@pytest.mark.parametrize("inside", ["store/m.prom", "store/commitlog/m.prom", "out/m.prom"])
def test_figures_stay_out_of_the_store_and_the_result(inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    words = [str(tmp_path / "store"), "--metrics", str(tmp_path / inside)]
    assert main(["build", *words, "--out", str(tmp_path / "out")]) == 1
    assert "--metrics" in capsys.readouterr().err
    if inside.startswith("store"):
        assert main(["verify", *words]) == 1
        assert "where nothing is written" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["commitlog", "store"]


@pytest.mark.parametrize(
    ("words", "status", "event"),
    [
        (["build", "/s", "--out", "/o", "--crc", f"x{HOSTILE}"], 2, "no such choice"),
        (["build", f"/none/{HOSTILE}", "--out", "/o"], 1, "no such store"),
        (["verify", f"/none/{HOSTILE}"], 1, "no such store"),
    ],
)
def test_errors_are_logged_too(words: list[str], status: int, event: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--log-format", "json"], ["--log-format=json"]):
        assert main([*words, *more]) == status, event
        lines = objects(capsys.readouterr().err)
        assert [line["context"]["event"] for line in lines][-2:] == ["error", "run-ended"]
        assert (lines[-2]["level"], lines[-2]["context"]["exit"]) == ("ERROR", status)
        assert lines[-2]["msg"].isprintable()


def test_what_a_library_says_is_told_once(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """As a line of the log, and not by Python's own handlers as well."""
    JsonLog().take("some.library", "warned")
    logging.getLogger("some.library").warning("too\x1b late")
    (line,) = objects(capsys.readouterr().err)
    assert (line["msg"], line["level"], line["context"]["event"]) == (r"too\x1b late", "WARNING", "warned")
    assert caplog.records == []


def test_the_environment_stands_for_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RMQ_REINDEX_LOG_FORMAT", "json")
    monkeypatch.setenv("RMQ_REINDEX_METRICS", "/m.prom")
    monkeypatch.setenv("RMQ_REINDEX_STORE_NAME", "")
    settings = parse_settings(["/s", "--out", "/o", "--metrics", "/n.prom"])
    assert (settings.log_format, settings.metrics, settings.progress, settings.store_name) == ("json", "/n.prom", "lines", "")
    assert main(["build", "/none", "--out", "/o", "--log-format", "text", "--metrics", "/no/m"]) == 1
    assert capsys.readouterr().err == "error: --metrics /no/m: /no is not a folder: make it first\n"
    monkeypatch.setenv("RMQ_REINDEX_PROGRESS", "loud")
    with pytest.raises(UsageError, match="RMQ_REINDEX_PROGRESS 'loud': take lines or json"):
        parse_settings(["/s", "--out", "/o"])


def test_very_many_warnings_are_not_all_logged() -> None:
    result, found = BuildResult(), Warnings()
    for number in range(1500):
        found.add_damage(f"{number:020d}", number, 1, "bad magic code")
    found.add_to(result)
    events = list(result.events())
    assert len(events) == 1001
    assert events[0][0] == "damage"
    assert events[-1] == ("warning", "500 more, see the summary", {})
    assert "about" not in json.loads(result.to_json())


def test_a_verify_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.prom"
    watch, summary, tally = Watch("verify", json_log=True), VerifyResult(), Tally()
    tally.add("queue-unit-missing", 7, "consumequeue/T/0/0", 3, "gone")
    settings = BuildSettings("/s", ".", metrics=str(path))
    watch.start(watched_run(settings, ()))
    summary.take(tally, Mend(settings))
    summary.warn("a sample")
    watch.end(summary)
    lines = objects(capsys.readouterr().err)
    assert [(line["level"], line["context"]["event"]) for line in lines] == [
        ("INFO", "run-begun"), ("WARNING", "difference"), ("INFO", "note"), ("INFO", "run-ended"),
    ]  # fmt: skip
    assert lines[1]["context"]["kind"] == "queue-unit-missing"
    assert (lines[-1]["context"]["exit"], lines[-1]["context"]["differences"]) == (4, 7)
    assert (samples(path)["exit_status", ""], samples(path)["differences", ""]) == (4, 7)


def test_lines_of_the_jvm_are_json_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever Spark's log settings, a JVM may write a line of its own. A later run in this process may ask for plain text."""
    said = f"WARNING: no such \x1b[31mflag\nOpenJDK {HOSTILE}\n".encode()
    for json_log in (True, False):
        watch = Watch("build", json_log=json_log)
        reading, writing = os.pipe()
        stderr = JvmErrors(os.fdopen(reading, "rb"))
        stderr.start()
        os.write(writing, said)
        os.close(writing)
        stderr.join(60)
        # Of one that does not come up a line is told, and no trace.
        assert capfd.readouterr().err == ""
        stderr.show()
        told = capfd.readouterr().err
        assert stderr.first.startswith("WARNING: no such")
        if not json_log:
            assert told.encode() == said
            continue
        watch.start(WatchedRun("/s", "/o"))
        lines = objects(told)
        assert {(line["level"], line["context"]["event"], line["context"]["command"]) for line in lines} == {
            ("WARNING", "jvm", "build")
        }
        assert lines[0]["msg"] == r"WARNING: no such \x1b[31mflag"
        capfd.readouterr()


def test_what_nobody_asks_for_is_not_imported() -> None:
    code = (
        "import sys; from rocketmq_reindex.jobs.cli import main; status = main(['build', '/none', '--out', '/o']);"
        "absent = ('rocketmq_reindex.jobs.watching.logs', 'rocketmq_reindex.jobs.watching.logs',"
        " 'pyspark', 'prometheus_client');"
        "print(status, [name for name in sys.modules if name in absent])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    assert found.stdout == "1 []\n"


def test_metrics_take_the_place_of_files_alone(tmp_path: Path) -> None:
    """A device or a pipe would be gone by the rename, /dev/null of a machine whose root runs this for one. No work is done."""
    random_log(tmp_path / "store" / "commitlog", 1)
    pipe, folder, absent = tmp_path / "pipe", tmp_path / "folder", tmp_path / "absent"
    os.mkfifo(pipe)
    folder.mkdir()
    whys = {
        pipe: "is no regular file: name another", folder: "is a folder: name a file",
        absent / "x.prom": f"{absent} is not a folder: make it first",
    }  # fmt: skip
    for place, why in whys.items():
        with pytest.raises(InputError) as raised:
            watched(BuildSettings(str(tmp_path / "store"), str(tmp_path / "out"), metrics=str(place)))
        assert str(raised.value) == f"--metrics {place}: {why}"
    assert pipe.is_fifo()
    assert list(folder.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"store", "pipe", "folder"}
