"""``--help``: each option stands in a group, each example is one, and a misspelt word gets the near one."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from rocketmq_reindex.jobs.cli import COMMANDS, main
from rocketmq_reindex.jobs.command.help import ABOUT, GROUPS, STATUSES, TITLES
from tests.docs.pages import text_of

OWN_GROUPS = {"object stores", "watching a run", "Delta tables", "verify again"}


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def parser(command: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    made = list[argparse.ArgumentParser]()

    def found(parser: argparse.ArgumentParser, *_: object) -> None:
        made.append(parser)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", found)
        main([command])
    return made[0]


def test_each_option_stands_in_one_group(parser: argparse.ArgumentParser) -> None:
    """Nothing but --help is left under "options"; the groups are in one order in each command."""
    titles = [str(group.title) for group in parser._action_groups]
    rest = [action.dest for action in parser._action_groups[1]._group_actions]
    assert (titles[:2], rest) == (["positional arguments", "options"], ["help"])
    shared = [title for title in titles[2:] if title not in OWN_GROUPS]
    assert shared == [title for title in GROUPS if title in shared]
    assert titles[2:] == shared + [title for title in titles if title in OWN_GROUPS]
    assert all(group._group_actions for group in parser._action_groups)


def test_the_groups_name_options_once() -> None:
    assert sum(map(len, GROUPS.values())) == len(TITLES)
    assert list(ABOUT) == list(COMMANDS)


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
    assert lines[-1] == f"more: docs/reference/{command}.md"
    assert text_of(f"reference/{command}")


def test_the_statuses_are_those_of_the_page() -> None:
    listed = re.findall(r"^\| (\d+) \|", text_of("reference/exit-statuses"), re.MULTILINE)
    assert [int(status) for status in listed if int(status) < 128] == list(STATUSES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["build", "store", "--out", "x", "--overwite"], "(--overwite: did you mean --overwrite?)"),
        (["build", "store", "--ouut=x"], "(--ouut: did you mean --out?)"),
        (["verify", "store", "--againts", "other"], "(--againts: did you mean --against?)"),
        (["query", "store", "--topic", "T", "--Key", "k"], "(--Key: did you mean --key"),
        (["fetch", "built", "--too", "x"], "(--too: did you mean --to"),
        (["preflight", "store", "--broker-config", "x"], "(--broker-config: did you mean --broker-conf"),
        (["biuld", "store"], "(did you mean build?)"),
        (["Verify"], "(did you mean verify"),
        (["--verison"], "(--verison: did you mean --version?)"),
    ],
)
def test_a_misspelt_word_gets_the_near_one(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: rmq-reindex")
    assert told in line


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
