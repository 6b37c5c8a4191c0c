"""The command line without a session: words to settings, one line and an exit status for everything wrong."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings, parse_settings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.command.option_table import EXTENDED
from rocketmq_reindex.jobs.command.options import parser_of
from rocketmq_reindex.jobs.inspecting import options
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


@pytest.mark.parametrize(
    "words",
    [
        "repair nowhere --out out", "build nowhere --out out", "verify nowhere",
        "info nowhere --json", "preflight nowhere --json", "fetch nowhere --to out --json",
    ],
)  # fmt: skip
def test_nobody_reads_the_errors(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What failed ends with no 0, and stdout has the object that was asked for."""
    monkeypatch.chdir(tmp_path)
    read, write = os.pipe()
    os.close(read)
    # An error that nobody catches ends a process with 1, too.
    with contextlib.suppress(BrokenPipeError), os.fdopen(write, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        assert main(words.split()) == 1
        assert ("--json" in words) == bool(capsys.readouterr().out)
    assert not (tmp_path / "out").exists()


def test_little_is_needed() -> None:
    assert parse_settings(["/s", "--out", "/o"]) == BuildSettings("/s", "/o")


def test_every_option() -> None:
    words = """/s --out /o --commitlog /a --commitlog /b --only index,checkpoint --cq-file-size 400 --hash-slots 5
        --index-items 6 --segment-size 4096 --index-policy window:1h --on-damage salvage --queue-order broker --crc all
        --checkpoint broker --lmq --broker-version 4.9 --include-topic A* --include-topic B --exclude-topic C
        --until-offset 7 --until-time 100000000008 --max-fill 9 --overwrite --range-size 10 --master local[1] --dry-run --json
        --write-topics --batch-cq-file-size 92"""
    assert parse_settings([*words.split(), "--delay-levels", "1s 2s"]) == BuildSettings(
        "/s", "/o", commitlogs=("/a", "/b"), only=("index", "checkpoint"), cq_file_size=400, hash_slots=5, index_items=6,
        segment_size=4096, index_policy="window:1h", on_damage="salvage", queue_order="broker", crc="all", checkpoint="broker",
        lmq=True, delay_levels="1s 2s", broker_version="4.9", include_topics=("A*", "B"), exclude_topics=("C",), until_offset=7,
        until_time=10**11 + 8, max_fill=9, overwrite=True, range_size=10, master="local[1]", dry_run=True, json=True,
        write_topics=True, batch_cq_file_size=92,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "",
        "/s",
        "--out /o",
        "/s --out",
        "/s /t --out /o",
        "/s --out /o --nonsense",
        "/s --out /o --on-damage ignore",
        "/s --out /o --queue-order best",
        "/s --out /o --crc some",
        "/s --out /o --broker-version 3.2",
        "/s --out /o --cq-file-size many",
        "/s --out /o --cq-file-size 25",
        "/s --out /o --only everything",
        "/s --out /o --index-policy daily",
        "/s --out /o --index-policy window:0h",
        # More milliseconds than 64 bits hold.
        "/s --out /o --index-policy window:106751991168d",
        "/s --out /o --until-time yesterday",
        "/s --out /o --delay-levels fast",
        "/s --out /o --broker-conf /no/such/file",
        "/s --out /o --over",
    ],
)
def test_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", *words.split(), "--json"]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("error: ")
    summary = json.loads(printed.out)
    assert (summary["exit"], summary["error"]) == (2, line.removeprefix("error: "))
    of_some = ("incremental", "repair", "delay", "plan")
    assert list(summary) == [field.name for field in dataclasses.fields(BuildResult) if field.name not in of_some]


@pytest.mark.parametrize("words", [["frobnicate"], ["--frobnicate"], ["build\nx"]])
def test_no_such_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_hostile_words_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "/s", "--out", "/o", "--until-time", "x\n\x1b[31merror: fine"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert line.isascii()


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["build", "--help"]])
def test_help_and_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "rmq-reindex" in capsys.readouterr().out


CONF = "maxIndexNum=500\nmaxHashSlotNum=40\nenableLmq=true\nenableMultiDispatch=true\n"


def test_the_broker_conf_gives_way_to_words(tmp_path: Path) -> None:
    conf, own, x, y = (tmp_path / name for name in ("broker.conf", "own", "x", "y"))
    for folder in (own, x, y):
        folder.mkdir()
    conf.write_text(text := f"{CONF}storePathRootDir={own}\n")
    given = parse_settings(["--out", "/o", "--broker-conf", str(conf), "--hash-slots", "7"])
    assert (given.store, given.index_items, given.hash_slots, given.lmq) == (str(own), 500, 7, True)
    other = parse_settings(["/copy", "--out", "/o", "--broker-conf", str(conf)])
    assert (other.store, other.commitlogs) == ("/copy", ())
    assert str(own) in other.inputs, "the broker's own store is no place for the output"
    conf.write_text(f"{text}storePathCommitLog={x},{y}\n")
    roots = parse_settings(["--out", "/o", "--broker-conf", str(conf)])
    assert (roots.store, roots.roots) == (str(own), (str(x), str(y)))
    copies = parse_settings(["--commitlog", "/copy", "--out", "/o", "--broker-conf", str(conf)])
    assert (copies.store, copies.roots) == ("", ("/copy",))


def test_values_of_the_conf_are_checked_as_well(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("maxIndexNum=1\n")
    words = ["/s", "--out", "/o", "--broker-conf", str(conf)]
    default = "and the default of --hash-slots is 5000000: take at least 1 slot"
    with pytest.raises(UsageError, match=rf"broker\.conf: maxIndexNum is 1 {default}"):
        parse_settings(words)
    with pytest.raises(UsageError, match=rf"^--index-items 0 {default}"):
        parse_settings([*words, "--index-items", "0"])
    with pytest.raises(UsageError, match=r"broker\.conf: maxIndexNum is 1, --hash-slots 5000000: take"):
        parse_settings([*words, "--hash-slots", "5000000"])


def test_an_error_of_the_input_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tmp_path / "none"), "--out", str(tmp_path / "out"), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit"] == 1
    assert "is not there" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for number in range(300):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
    arguments = ["build", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--dry-run", "--master", "local[2]"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    segments = len(list((tmp_path / "store" / "commitlog").iterdir()))
    assert f"would read  {segments} segments" in said
    assert re.search(r"expected    about \d+ records", said)
    assert re.search(r"about \d+ items in 1 IndexFile$", said, re.MULTILINE)
    assert "on 2 cores" in said
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["bytes"] == segments << 14
    assert "would read" in printed.err


@pytest.mark.parametrize(("parser", "settings"), [(parser_of("build"), BuildSettings), (parser_of("verify"), VerifySettings)])
def test_help_shows_the_defaults_of_the_settings(parser: argparse.ArgumentParser, settings: type[StoreSettings]) -> None:
    """The settings are the one place where defaults stand; sizes and the version come from the files first."""
    wanted = {setting.name: setting.default for setting in dataclasses.fields(settings)}
    shown = 0
    for action in parser._actions:
        value = wanted.get(action.dest)
        if action.nargs == 0 or not value or value in (dataclasses.MISSING, INT64_MAX):
            continue
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        if action.dest in (*SIZES, *EXTENDED, "broker_version"):
            text = "taken from the files" if settings is VerifySettings else f"taken from the files, or {value}"
        elif action.dest == "engine":
            text = f"{value}, where it is installed with a Java"
        assert (action.help or "").endswith(f"({text})"), action.dest
        shown += 1
    assert shown > 8


def test_a_ctrl_c_within_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One that has no handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(options, "inspect", lambda _: signal.raise_signal(signal.SIGINT))
    try:
        assert main(["inspect", "x"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "error: interrupted\n"
