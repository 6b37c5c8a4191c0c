"""Keywords of the Python API and options of the command line are the same: neither can change without the other."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import typing
from collections.abc import Callable
from typing import NamedTuple

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs import cli
from rocketmq_reindex.jobs.api import keywords
from rocketmq_reindex.jobs.command.option_table import default_of
from rocketmq_reindex.jobs.command.options import parser_of


class Command(NamedTuple):
    """A function, the parser of its command, and the keyword of the command's argument."""

    function: Callable[..., rr.Result]
    parser: argparse.ArgumentParser
    argument: str
    extra: frozenset[str] = frozenset()


COMMANDS = {
    "build": Command(rr.build, parser_of("build"), "store", frozenset({"spark"})),
    "repair": Command(rr.repair, parser_of("repair"), "store", frozenset({"spark"})),
    "verify": Command(rr.verify, parser_of("verify"), "store", frozenset({"spark"})),
    "trace": Command(rr.trace, parser_of("trace"), "store"),
    "export": Command(rr.export, parser_of("export"), "store", frozenset({"spark"})),
    "import": Command(rr.import_messages, parser_of("import"), "source"),
    "replay": Command(rr.replay, parser_of("replay"), "store"),
    "consumers": Command(rr.consumers, parser_of("consumers"), "store"),
    "query": Command(rr.query, parser_of("query"), "store"),
    "inspect": Command(rr.inspect, parser_of("inspect"), "file"),
    "report": Command(rr.report, parser_of("report"), "source"),
    "fetch": Command(rr.fetch, parser_of("fetch"), "build"),
    "info": Command(rr.info, parser_of("info"), "store"),
    "preflight": Command(rr.preflight, parser_of("preflight"), "store"),
    "browse": Command(rr.browse, parser_of("browse"), "stores"),
}
NAMES = {"inspect": {"files": "file"}}
"""arguments that the function calls otherwise: it takes one file"""
REQUIRED = {"repair": ("out",)}
"""options that are left out only beside --explain, which is no keyword"""
_OF_STORE = ("cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "crc", "broker_version", "max_fill")
DEFAULTS: dict[str, tuple[str, ...]] = {
    "build": (*_OF_STORE, "index_policy", "on_damage", "queue_order", "checkpoint"),
    "repair": (*_OF_STORE, "link"),
    "verify": ("crc", "max_fill", "sample"),
    "query": ("body_max", "body"),
    "trace": ("max",),
    "export": ("format", "body", "body_max", "delay_levels"),
    "import": ("segment_size", "broker_version"),
    "replay": ("body_max", "delay_levels"),
    "consumers": ("merge",),
    "info": (),
    "inspect": (),
    "report": ("out",),
    "fetch": ("threads", "keep"),
    "preflight": ("broker_version", "count_limit"),
    "browse": ("port", "delay_levels"),
}
"""options with a default that the docstring names"""


def test_every_command_is_a_function() -> None:
    assert set(COMMANDS) == set(cli.COMMANDS)


@pytest.fixture(params=sorted(COMMANDS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def options(name: str) -> dict[str, argparse.Action]:
    found = keywords.options_of(COMMANDS[name].parser)
    return {NAMES.get(name, {}).get(keyword, keyword): action for keyword, action in found.items()}


def test_every_option_has_its_keyword(name: str) -> None:
    command = COMMANDS[name]
    assert set(inspect.signature(command.function).parameters) == set(options(name)) | command.extra


def test_all_but_the_argument_are_keyword_only(name: str) -> None:
    command = COMMANDS[name]
    for parameter in inspect.signature(command.function).parameters.values():
        expected = parameter.POSITIONAL_OR_KEYWORD if parameter.name == command.argument else parameter.KEYWORD_ONLY
        assert parameter.kind == expected, parameter.name


def test_defaults_are_those_of_an_option_left_out(name: str) -> None:
    parameters = inspect.signature(COMMANDS[name].function).parameters
    for keyword, action in options(name).items():
        required = (action.required and action.nargs != "?") or keyword in REQUIRED.get(name, ())
        switch = action.nargs == 0 or keyword == "progress"
        expected = inspect.Parameter.empty if required else False if switch else None
        assert parameters[keyword].default is expected, keyword


def test_choices_are_those_of_the_option(name: str) -> None:
    function = COMMANDS[name].function
    names = {name: getattr(rr, name) for name in rr.__all__} | vars(importlib.import_module(function.__module__))
    names["SparkSession"] = object
    hints = typing.get_type_hints(function, names)
    for keyword, action in options(name).items():
        literals = [each for each in typing.get_args(hints[keyword]) if typing.get_origin(each) is typing.Literal]
        found = {value for literal in literals for value in typing.get_args(literal)}
        assert found == set(action.choices or ()), keyword


def test_the_docstring_explains_every_keyword_and_its_default(name: str) -> None:
    text = inspect.getdoc(COMMANDS[name].function) or ""
    arguments = text.partition("Args:\n")[2].partition("\n\n")[0]
    explained = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert explained == list(inspect.signature(COMMANDS[name].function).parameters)
    said = {}
    for entry in re.split(r"\n    (?=\w+: )", "\n" + arguments):
        default = re.search(r"Default:\s+(?:taken from the files, or )?`*([^`,]+?)`*\.$", entry)
        said[entry.strip().partition(":")[0]] = default[1] if default else None
    for keyword in DEFAULTS[name]:
        assert said.get(keyword) == str(default_of(keyword, name)), keyword
    assert "Example:" in text


def test_a_keyword_is_read_as_its_option(name: str) -> None:
    """Each text that the parser takes gives the same value by keyword, alone."""
    command = COMMANDS[name]
    needed = [word for action in command.parser._actions if action.required for word in _words(action)]
    for action in keywords.options_of(command.parser).values():
        words = _words(action)
        expected = vars(command.parser.parse_args([*needed, *words] if not action.required else needed))
        value: object = True if action.nargs == 0 else words[-1]
        others = {keywords.keyword_of(each): _words(each)[-1] for each in command.parser._actions if each.required}
        found = keywords.given(name, others | {keywords.keyword_of(action): value})
        assert found == expected, action


SAMPLES = {
    "only": "index", "index_policy": "window:1h", "delay_levels": "1s 2s", "until_time": "100000000008",
    "broker_version": "5.3", "since": "100000000012", "until": "100000000013", "time": "100000000009",
    "sql": "a = 1", "begin": "100000000010", "end": "100000000011",
    "to_time": "100000000012",
}  # fmt: skip


def _words(action: argparse.Action) -> list[str]:
    """Words that give an option a value it takes."""
    if action.nargs == 0:
        return [action.option_strings[0]]
    sample = SAMPLES.get(action.dest, "7" if action.type in (int, float) else "x")
    value = str(next(iter(action.choices))) if action.choices else sample
    return [action.option_strings[0], value] if action.option_strings else [value]


@pytest.mark.parametrize(
    ("keyword", "value", "expected"),
    [
        ("only", ("checkpoint", "index"), ("index", "checkpoint")),
        ("only", "index,checkpoint", ("index", "checkpoint")),
        ("until_time", "2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("until_time", 1_700_000_000_000, 1_700_000_000_000),
        ("cq_file_size", "400", 400),
        ("include_topic", "A*", ["A*"]),
        ("include_topic", ("A*", "B"), ["A*", "B"]),
    ],
)
def test_values_of_several_types(keyword: str, value: object, expected: object) -> None:
    (found,) = keywords.given("build", {keyword: value}).values()
    assert found == expected
