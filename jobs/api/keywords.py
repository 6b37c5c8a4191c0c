"""Keyword arguments, read by the parser of their command: both have the same options, choices, types and defaults."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rocketmq_reindex.storage_format.errors import UsageError

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]
Size = int | str
Time = int | str | dt.datetime

NOT_OPTIONS: Final = frozenset({"help", "json", "explain"})
"""options without a keyword: ``help()`` shows a function's docstring, ``to_dict()`` gives what --json prints, and
``repair --explain`` has no part in a run"""
NOT_KEYWORDS: Final = frozenset({"spark"})
"""keywords without an option"""
COMMA_LISTS: Final = frozenset({"only"})
"""options whose text is a list, separated by commas"""


def keyword_of(action: argparse.Action) -> str:
    """The keyword of an option: ``--on-damage`` is ``on_damage``."""
    names = [name for name in action.option_strings if name.startswith("--")]
    return names[0].removeprefix("--").replace("-", "_") if names else action.dest


def options_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options of a parser by their keywords."""
    found = {keyword_of(action): action for action in parser._actions}
    return {keyword: action for keyword, action in found.items() if keyword not in NOT_OPTIONS}


def keywords_in(parser: argparse.ArgumentParser, text: str) -> dict[str, Any]:
    """The keywords that options stand for, in a text as on the command line. Raises UsageError."""
    for action in parser._actions:
        action.required = False
    try:
        found = vars(parser.parse_args(shlex.split(text)))
    except ValueError as error:
        parser.error(str(error))
    named = {keyword: found.get(action.dest) for keyword, action in options_of(parser).items()}
    return {keyword: value for keyword, value in named.items() if value is not None and value is not False}


def given(parser: argparse.ArgumentParser, keywords: Mapping[str, object]) -> dict[str, Any]:
    """The options that keywords stand for, by the names of the parser and with its types. Raises UsageError.

    A keyword that is None, and a switch that is False, is left out, as an option is. One that is required cannot be None.
    """
    options = options_of(parser)
    found = {action.dest: action.default for action in parser._actions if action.default is not argparse.SUPPRESS}
    for keyword, value in keywords.items():
        switched = keyword == "progress" and isinstance(value, bool)
        if keyword in NOT_KEYWORDS or switched:
            continue
        action = options[keyword]
        if value is None and not action.required:
            continue
        try:
            if action.nargs == 0:
                if not isinstance(value, bool):
                    # A text such as "no" would switch it on.
                    raise argparse.ArgumentError(action, f"invalid value: {value!r}")
                found |= {action.dest: True} if value else {}
            elif isinstance(action, argparse._AppendAction) or action.nargs == "+":
                several = isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike)
                values = cast(Iterable[object], value) if several else [value]
                found[action.dest] = [_read(parser, action, each) for each in values]
            else:
                found[action.dest] = _read(parser, action, value)
        except argparse.ArgumentError as error:
            parser.error(str(error))
    return found


def _read(parser: argparse.ArgumentParser, action: argparse.Action, value: object) -> Any:
    """One value, as the parser reads the option's text."""
    read = parser._get_value(action, _text(parser, action, value))
    parser._check_value(action, read)
    return read


def _text(parser: argparse.ArgumentParser, action: argparse.Action, value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise UsageError(f"{parser.prog}: {keyword_of(action)}: {value.isoformat()} has no time zone: give one")
        return value.isoformat()
    if isinstance(value, list | tuple) and keyword_of(action) in COMMA_LISTS:
        return ",".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise argparse.ArgumentError(action, f"invalid value: {value!r}")
    return str(value)
