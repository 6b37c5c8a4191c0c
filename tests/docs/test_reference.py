"""What the reference says by hand is what the code does; tables of ``from_code`` are complete."""

from __future__ import annotations

import argparse
import dataclasses
import re
import struct

import pytest

import rocketmq_reindex
from docs import from_code
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import RepairResult
from rocketmq_reindex.jobs.cli import COMMANDS
from rocketmq_reindex.jobs.command.options import parser_of
from rocketmq_reindex.jobs.command.results import ENDING
from rocketmq_reindex.storage_format.checks.differences import KINDS, PARTS
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, UsageError
from rocketmq_reindex.storage_format.versions import RELEASES, VERSIONS
from rocketmq_reindex.udfs.messages.log_rows import RANGE_SIZE, UNPACKED_MAX
from rocketmq_reindex.udfs.sql import functions
from rocketmq_reindex.udfs.table_schema import TABLES
from tests.docs.pages import names, rows, section, text_of


def test_every_table_of_the_pages_can_be_made() -> None:
    for page in names():
        for words in re.findall(r"^```\{from-code\} (.+)$", text_of(page), re.MULTILINE):
            made = from_code.made(words)
            assert made, page
            # Outside code a page shows the two hyphens of an option as a dash.
            plain = re.sub(r"```[^`]*```|`[^`]*`|^    .*$", "", made, flags=re.MULTILINE)
            assert not re.search(r"(?:^|[\s(])--[a-z]", plain), (page, words)


def actions_of(command: str) -> list[argparse.Action]:
    """Every option and argument of a command but --help, as its parser has it."""
    return [action for action in parser_of(command)._actions if action.dest != "help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_all_there(command: str) -> None:
    stated = re.findall(r"^\| `([^` ]+)", from_code.options(command), re.MULTILINE)
    actions = actions_of(command)
    assert sorted(stated) == sorted((action.option_strings or [str(action.metavar)])[0] for action in actions)
    assert all(action.help for action in actions)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_in_the_text_exist(command: str) -> None:
    """Of this command, or of those that its page tells of besides."""
    known = {name for of in COMMANDS for action in actions_of(of) for name in action.option_strings}
    assert set(re.findall(r"`(--[a-z-]+)", text_of(f"reference/{command}"))) <= {*known, "--help", "--version"}


def test_defaults_in_the_help_are_the_settings() -> None:
    """Where the help of build ends with a default, it is the setting's."""
    settings = {field.name: field.default for field in dataclasses.fields(BuildSettings)}
    for action in actions_of("build"):
        value = settings.get(action.dest)
        found = re.search(r" \((\d+|[a-z]+|[\d.]+)\)$", action.help or "")
        if found and action.nargs != 0 and isinstance(value, str | int) and value and found[1] != "repeatable":
            assert found[1] == str(value), action.dest


@pytest.mark.parametrize(("option", "page", "title"), [
    ("--on-damage", "explanation/damage", "Damage"), ("--queue-order", "explanation/queue-order", "Queue order"),
])  # fmt: skip
def test_every_policy_is_explained(option: str, page: str, title: str) -> None:
    (action,) = (action for action in actions_of("build") if option in action.option_strings)
    stated = [row[0] for row in rows(text_of(page).split(f"# {title}\n", 1)[1].split("\n## ", 1)[0])]
    assert stated == [f"`{choice}`" for choice in action.choices or ()]


def test_the_page_of_versions_has_every_release_and_line() -> None:
    text = text_of("reference/versions")
    heads = [line.strip("| ").split(" | ") for line in re.findall(r"^\| \|( .+)$", text, re.MULTILINE)]
    assert len(heads) > 3
    assert all(tuple(word for word in head if word != "tried") == RELEASES for head in heads)
    assert tuple(row[0] for row in rows(text.split("\n## ")[0])) == VERSIONS[::-1]


def test_every_difference_is_in_one_table() -> None:
    stated = re.findall(r"^\| `([a-z-]+)` \|", "".join(from_code.differences(part) for part in PARTS), re.MULTILINE)
    assert sorted(stated) == sorted(KINDS)
    assert [words.split()[1] for words in re.findall(r"from-code\} (.+)", text_of("reference/differences"))] == [
        "log", "consumequeue", "index", "checkpoint",
    ]  # fmt: skip


def test_every_column_of_the_delta_tables() -> None:
    text = from_code.delta_tables()
    for table in TABLES:
        part = text.split(f"## {table.name}\n", 1)[1].split("\n## ", 1)[0]
        assert [row[0].strip("`") for row in rows(part)] == [column.name for column in table.columns]


def test_exit_statuses() -> None:
    stated = [int(row[0]) for row in rows(text_of("reference/exit-statuses"))]
    signals = {128 + number for number in ENDING}
    assert stated == sorted({0, 3, 4} | signals | {kind.exit_status for kind in (InputError, UsageError, RefusedError)})


def test_the_summary_is_shown_whole() -> None:
    shown = re.search(r"```text\n(.*?)```", section("reference/manifest", "Summary"), re.DOTALL)
    assert shown
    keys = re.findall(r'"(\w+)"', re.sub(r": (\{[^}]*\}|\[[^]]*\])", "", shown[1]))
    assert keys == RepairResult.json_keys()


def test_options_of_the_data_sources() -> None:
    stated: dict[str, set[str]] = {source.name().removeprefix("rocketmq-"): set() for source in from_code.SOURCES}
    for names_of, of, _ in rows(section("reference/sql", "Options")):
        for name in stated if of == "all" else of.split(", "):
            stated[name] |= set(re.findall(r"`(\w+)`", names_of))
    assert stated == {s.name().removeprefix("rocketmq-"): {*s.known, "columns", "damage"} for s in from_code.SOURCES}
    assert f"({RANGE_SIZE})" in text_of("reference/sql")
    assert f"({UNPACKED_MAX})" in text_of("reference/sql")


def test_functions_have_their_arguments() -> None:
    stated = {row[0].strip("`").split("(")[0]: row[0].count(",") + 1 for row in rows(from_code.sql_functions())}
    assert stated == {name: arguments for name, (_, _, arguments) in functions.FUNCTIONS.items()}


@pytest.mark.parametrize("title", ["Commitlog record", "ConsumeQueue unit", "Batch ConsumeQueue unit", "Checkpoint"])
def test_fields_lie_one_behind_the_other(title: str) -> None:
    stated = [(re.match(r"\d+", row[0]), re.match(r"\d+", row[2])) for row in rows(section("explanation/format", title))]
    ends = [int(offset[0]) + int(size[0]) for offset, size in stated if offset and size]
    assert [int(offset[0]) for offset, _ in stated[1:] if offset] == ends[: len([1 for o, _ in stated[1:] if o])]
    if title.endswith("unit"):
        assert ends[-1] == struct.calcsize(">qiqqqhii" if title.startswith("Batch") else ">qiq")


def test_the_python_api_is_there() -> None:
    """Every name of the package, and no other."""
    stated = re.findall(r"^\.\. auto\w+:: rocketmq_reindex\.(\w+)", text_of("reference/python-api"), re.MULTILINE)
    offered = getattr(rocketmq_reindex, "__all__", None)
    assert len(stated) == len(set(stated))
    assert offered is None or set(stated) == {*offered} - {"__version__"}
