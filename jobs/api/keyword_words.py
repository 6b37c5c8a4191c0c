"""Errors in the words of the Python API: an option that a text names becomes its keyword, ``--overwrite`` ``overwrite=True``.

The texts are written once, for the command line. What is an option, which ones are switches and which values they take comes
from the parsers. Commands within a text stay as they are: they are there to be pasted into a shell.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from rocketmq_reindex.jobs.api.keywords import COMMA_LISTS, options_of
from rocketmq_reindex.jobs.command.parsers import all_parsers, parser_of
from rocketmq_reindex.storage_format.checks.differences import PARTS
from rocketmq_reindex.storage_format.errors import ReindexError

P = ParamSpec("P")
R = TypeVar("R")

_WORD: Final = r"(?:\$?'[^']*'|[\w@%+=:,./-]*[\w@%+=/-])"
"""one word of a command, as ``shlex.quote`` leaves it"""
_COMMAND: Final = rf"`[^`]*`|rmq-reindex \w+(?![\w:])(?: {_WORD})*"
_OPTION: Final = r"(?P<argument>argument )?(?<![\w-])--(?P<name>[a-z][a-z-]*)(?P<value> (?:'[^']*'|\"[^\"]*\"|[^\s;?()]+))?"
_ARGUMENT: Final = r"(?<![\w/])(?P<place>[A-Z]{4,})(?!\w)"
_SEEN: Final = re.compile(rf"(?P<command>{_COMMAND})|{_OPTION}(?P<other> or \w+)?|{_ARGUMENT}")
_ENDS: Final = ":.,"
"""what ends a part of a sentence, and no value"""


def in_keywords(text: str, function: str) -> str:
    """Return an error of the command line as the function of the Python API says it."""
    parser = parser_of(function)
    said = functools.partial(_said, actions=_actions() | options_of(parser), places=_places(parser))
    lines = []
    for line in text.split("\n"):
        rest = line.removeprefix(f"{parser.prog}: ").removesuffix(": see --help")
        begin = f"{function}: " if line.startswith(f"{parser.prog}: ") else ""
        lines.append(begin + _SEEN.sub(said, rest))
    return "\n".join(lines)


@functools.cache
def _actions() -> dict[str, argparse.Action]:
    """The options of all commands, by their keywords: an error may advise another command."""
    return {keyword: action for parser in all_parsers().values() for keyword, action in options_of(parser).items()}


def _places(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The keyword of each argument, by what texts call it: ``STORE``."""
    found = [action for action in parser._actions if not action.option_strings]
    return {str(action.metavar): "file" if action.nargs == "+" else action.dest for action in found}


def _said(match: re.Match[str], actions: Mapping[str, argparse.Action], places: Mapping[str, str]) -> str:
    """A command as it is, or an option as a keyword, with its value where one follows."""
    if match["place"]:
        return places.get(match["place"], match[0])
    keyword = (match["name"] or "").replace("-", "_")
    action = actions.get(keyword)
    if match["command"] or action is None:
        return match[0]
    given, other = match["value"] or "", match["other"] or ""
    if match["argument"]:
        return f"argument {keyword}{given}{other}"
    if action.nargs == 0:
        return f"{keyword}=True{given}{other}"
    value = given.strip().rstrip(_ENDS)
    end = given.strip()[len(value) :]
    if not _is_value(keyword, action, value, match.start() == 0 and end == ":"):
        return keyword + given + other
    if action.choices and other.removeprefix(" or ") in action.choices:
        other = f' or "{other.removeprefix(" or ")}"'
    return f"{keyword}={_literal(action, value)}{end}{other}"


def _is_value(keyword: str, action: argparse.Action, word: str, at_the_front: bool) -> bool:
    """Whether the word behind an option is its value, and not the next word of the sentence."""
    if word[:1] in ("'", '"'):
        return True
    if action.choices is not None:
        return word in action.choices
    if keyword in COMMA_LISTS:
        return bool(word) and set(word.split(",")) <= set(PARTS)
    return bool(word) and (at_the_front or word.isupper() or any(mark in word for mark in "/[0123456789*"))


def _literal(action: argparse.Action, word: str) -> str:
    if action.type in (int, float):
        return word.strip("'\"").replace(",", "")
    # A placeholder, such as DIR, stands for an expression.
    return word if word[:1] in ("'", '"') or word.isupper() else f'"{word}"'


def says_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of the Python API raise its errors in the words of Python."""

    @functools.wraps(function)
    def run(*words: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*words, **keywords)
        except ReindexError as error:
            error.args = (in_keywords(str(error), function.__name__), *error.args[1:])
            raise

    return run
