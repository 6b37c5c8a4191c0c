"""``--help``: each option stands in a group, each example is one, and a misspelt word gets the near one."""

from __future__ import annotations

import argparse
import json
import re
import shlex

import pytest

from rocketmq_reindex.jobs.cli import COMMANDS, main
from rocketmq_reindex.jobs.command import option_table
from rocketmq_reindex.jobs.command.option_table import GROUPS
from rocketmq_reindex.jobs.command.options import ABOUT, STATUSES, parser_of
from tests.docs.pages import ROOT, text_of


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def parser(command: str) -> argparse.ArgumentParser:
    return parser_of(command)


def test_each_option_stands_in_one_group(parser: argparse.ArgumentParser) -> None:
    """Nothing but --help is left under "options"; the groups are in one order in each command."""
    titles = [str(group.title) for group in parser._action_groups]
    rest = [action.dest for action in parser._action_groups[1]._group_actions]
    assert (titles[:2], rest) == (["positional arguments", "options"], ["help"])
    assert titles[2:] == [title for title in GROUPS if title in titles]
    # Only trace has no argument: each of its stores has a name.
    assert all(group._group_actions for group in parser._action_groups[1:])


def test_each_option_belongs_to_a_command() -> None:
    names = {name for command in COMMANDS for name in option_table.options_of(command)}
    assert names == set(option_table.OPTIONS)
    assert list(ABOUT) == list(COMMANDS) == list(option_table.COMMANDS)


@pytest.mark.parametrize("name", ["cq_file_size", "snapshot", "store_name"])
def test_three_files_make_a_shared_option(name: str) -> None:
    """The table declares it, the settings have its field, the signatures its keyword."""
    told = re.compile(rf"\b{name}(: [\w.]+ (=|\|)|=Option)")
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "jobs").rglob("*.py") if told.search(path.read_text())}
    others = {"jobs/api/looking.py", "jobs/api/without_engine.py", "jobs/preflighting/options.py"}
    assert found - others == {"jobs/command/option_table.py", "jobs/store/settings.py", "jobs/api/with_engine.py"}


def test_the_examples_are_commands(command: str, parser: argparse.ArgumentParser) -> None:
    assert ABOUT[command].examples
    for example in ABOUT[command].examples:
        program, name, *words = shlex.split(example)
        assert (program, name) == ("rmq-reindex", command)
        parser.parse_args(words)


def test_the_end_of_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert f"  {ABOUT[command].examples[0]}" in lines
    at = lines.index("exit status:")
    assert [int(line.split()[0]) for line in lines[at + 1 : lines.index("", at)]] == list(ABOUT[command].statuses)
    assert lines[-1] == f"more: man rmq-reindex-{command}, and docs/reference/{command}.md in the sources"
    assert text_of(f"reference/{command}")


def test_the_statuses_are_those_of_the_page() -> None:
    listed = re.findall(r"^\| (\d+) \|", text_of("reference/exit-statuses"), re.MULTILINE)
    assert [int(status) for status in listed if int(status) < 128] == list(STATUSES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["build", "store", "--out", "x", "--overwite"], "arguments: --overwite (did you mean --overwrite?)"),
        (["build", "store", "--ouut=x"], "arguments: --ouut (did you mean --out?)"),
        (["verify", "store", "--againts", "other"], "arguments: --againts (did you mean --against?)"),
        (["query", "store", "--topic", "T", "--Key", "k"], "arguments: --Key (did you mean --key"),
        (["fetch", "built", "--too", "x"], "arguments: --too (did you mean --to"),
        (["preflight", "store", "--broker-config", "x"], "arguments: --broker-config (did you mean --broker-conf"),
        (["biuld", "store"], "(did you mean build?)"),
        (["Verify"], "(did you mean verify"),
        (["--verison"], "arguments: --verison (did you mean --version?)"),
    ],
)
def test_a_misspelt_word_gets_the_near_one(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: rmq-reindex")
    assert told in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["build", "store", "--out", "x", "--onn-damage", "stop", "--queue-ordr=broker", "other"],
            [
                "unrecognized arguments: --onn-damage (did you mean --on-damage?)",
                "unrecognized arguments: --queue-ordr (did you mean --queue-order?)",
                "unrecognized arguments: other",
            ],
        ),
        (["build", "store", "--oout", "x"], ["unrecognized arguments: --oout (did you mean --out?)"]),
        (
            ["fetch", "--overwite"],
            ["unrecognized arguments: --overwite", "the following arguments are required: BUILD, --to"],
        ),
        (
            ["build", "store", "--out", "x", "--hash-slots", "few", "--on-damage", "skip", "--only", "all", "--lmqq"],
            [
                "argument --hash-slots: invalid int value: 'few'", "argument --on-damage: invalid choice: 'skip'",
                "--only 'all': take one or more of", "unrecognized arguments: --lmqq (did you mean --lmq?)",
            ],
        ),
        (
            ["build", "store", "--out", "x", "--cq-file-size", "7", "--max-fill=-1", "--recheck"],
            ["--cq-file-size 7: take a multiple", "--max-fill -1: take a number", "--recheck: goes with --incremental"],
        ),
        (["verify", "store", "--sample", "2", "--recheck"], ["--sample 2.0: take a share", "--recheck: goes with"]),
        (["repair", "s", "--out", "x", "--extend", "--majority"], ["--extend: takes what", "--majority: one of two"]),
        (["biuld", "store", "--out", "x", "--no-such"], ["(did you mean build?)"]),
    ],
)  # fmt: skip
def test_each_wrong_word_has_its_line(words: list[str], told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    assert len(lines) == len(told)
    assert all(text in line for text, line in zip(told, lines, strict=True))


def test_each_wrong_word_is_an_event_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "store", "--out", "x", "--log-format", "json", "--max-fill", "-1", "--recheck"]) == 2
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    errors = [event["msg"] for event in events if event["level"] == "ERROR"]
    assert [error.partition(":")[0] for error in errors] == ["--max-fill -1", "--recheck"]


@pytest.mark.parametrize("words", [["build", "store", "--out", "x", "--zzzzzzzzzz"], ["zzzzzz"], ["report", "x", "--x\x1b[2J"]])
def test_a_word_like_no_other_gets_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "did you mean" not in line
    assert line.isprintable()


def test_no_word_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(re.search(rf"^    {name}\b", printed.err, re.MULTILINE) for name in COMMANDS)
