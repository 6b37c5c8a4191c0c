"""Keyword arguments of the Python API: read by the parser of their command, and named in its errors."""

import argparse
import datetime as dt
import functools
import inspect
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast

from rocketmq_reindex.jobs.api.running_here import Ended
from rocketmq_reindex.jobs.command import option as command_option, option_table, options as command_options
from rocketmq_reindex.jobs.command.results import Result, was_interrupted
from rocketmq_reindex.storage_format.checks.differences import PARTS
from rocketmq_reindex.storage_format.errors import ReindexError, UsageError

# --------------------------------------------------------------------------------------------------------------------- keywords
# Keyword arguments, read by the parser of their command: both have the same options, choices, types and defaults.

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
    """Return the keyword of an option: ``--on-damage`` is ``on_damage``."""
    names = [name for name in action.option_strings if name.startswith("--")]
    return names[0].removeprefix("--").replace("-", "_") if names else action.dest


def options_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options of a parser by their keywords."""
    by_keyword = {keyword_of(action): action for action in parser._actions}
    return {keyword: action for keyword, action in by_keyword.items() if keyword not in NOT_OPTIONS}


def keywords_in(parser: argparse.ArgumentParser, text: str) -> dict[str, Any]:
    """Return the keywords that options stand for, in a text as on the command line. Raises UsageError."""
    for action in parser._actions:
        action.required = False
    try:
        read = vars(parser.parse_args(shlex.split(text)))
    except ValueError as error:
        parser.error(str(error))
    named = {keyword: read.get(action.dest) for keyword, action in options_of(parser).items()}
    return {keyword: value for keyword, value in named.items() if value is not None and value is not False}


def given(command: str, keywords: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that keywords of a command stand for, by the parser's names and with its types. Raises UsageError.

    A keyword that is None, and a switch that is False, is left out, as an option is. One that is required cannot be None.
    """
    parser = command_options.parser_of(command)
    options, by_name = options_of(parser), dict[str, Any]()
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
                by_name |= {action.dest: True} if value else {}
            elif isinstance(action, argparse._AppendAction) or action.nargs == "+":
                by_name[action.dest] = [_read(parser, action, each) for each in several(value)]
            else:
                by_name[action.dest] = _read(parser, action, value)
        except argparse.ArgumentError as error:
            parser.error(str(error))
    return by_name


def several(value: object) -> list[Any]:
    """Return a keyword that is one value, or some of them, as a list."""
    is_one = isinstance(value, str | bytes | os.PathLike) or not isinstance(value, Iterable)
    return [value] if is_one else list(cast(Iterable[object], value))


def time_text(name: str, time: dt.datetime) -> str:
    """Return a time as the text of an option, which ``name`` stands for in an error. Raises UsageError for one without zone."""
    if time.tzinfo is None:
        raise UsageError(f"{name}: {time.isoformat()} has no time zone: give one")
    return time.isoformat()


def _read(parser: argparse.ArgumentParser, action: argparse.Action, value: object) -> Any:
    """Return one value, as the parser reads the option's text."""
    read = parser._get_value(action, _text(parser, action, value))
    parser._check_value(action, read)
    return read


def _text(parser: argparse.ArgumentParser, action: argparse.Action, value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, dt.datetime):
        return time_text(f"{parser.prog}: {keyword_of(action)}", value)
    if isinstance(value, list | tuple) and keyword_of(action) in COMMA_LISTS:
        return ",".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise argparse.ArgumentError(action, f"invalid value: {value!r}")
    return str(value)


# ---------------------------------------------------------------------------------------------------------------- keyword_words
# Errors in the words of the Python API: an option that a text names becomes its keyword, ``--overwrite`` ``overwrite=True``.
#
# The texts are written once, for the command line. What is an option, which ones are switches and which values they take comes
# from the parsers. Commands within a text stay as they are: they are there to be pasted into a shell.

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


def command_of(function: str) -> str:
    """Return the command of a function of the Python API: ``import`` is a word of Python."""
    return function.removesuffix("_messages")


def in_keywords(text: str, function: str) -> str:
    """Return an error of the command line as the function of the Python API says it."""
    parser = command_options.parser_of(command_of(function))
    own = option_table.options_of(command_of(function))
    places = {option.metavar: "file" if option.nargs == "+" else name for name, option in own.items() if option.is_argument}
    as_keyword = functools.partial(_said, options=option_table.OPTIONS | own, places=places)
    lines = []
    for line in text.split("\n"):
        message = line.removeprefix(f"{parser.prog}: ").removesuffix(": see --help")
        begin = f"{function}: " if line.startswith(f"{parser.prog}: ") else ""
        lines.append(begin + _SEEN.sub(as_keyword, message))
    return "\n".join(lines)


def _said(match: re.Match[str], options: Mapping[str, command_option.Option], places: Mapping[str, str]) -> str:
    """Return a command as it is, or an option as a keyword, with its value where one follows."""
    if match["place"]:
        return places.get(match["place"], match[0])
    keyword = (match["name"] or "").replace("-", "_")
    option = None if keyword in NOT_OPTIONS else options.get(keyword)
    if match["command"] or option is None:
        return match[0]
    given, other = match["value"] or "", match["other"] or ""
    if match["argument"]:
        return f"argument {keyword}{given}{other}"
    if option.is_switch:
        return f"{keyword}=True{given}{other}"
    value = given.strip().rstrip(_ENDS)
    end = given.strip()[len(value) :]
    if not _is_value(keyword, option, value, match.start() == 0 and end == ":"):
        return keyword + given + other
    if other.removeprefix(" or ") in option.choices:
        other = f' or "{other.removeprefix(" or ")}"'
    return f"{keyword}={_literal(option, value)}{end}{other}"


def _is_value(keyword: str, option: command_option.Option, word: str, at_the_front: bool) -> bool:
    """Return whether the word behind an option is its value, and not the next word of the sentence."""
    if word[:1] in ("'", '"'):
        return True
    if option.choices:
        return word in option.choices
    if keyword in COMMA_LISTS:
        return bool(word) and set(word.split(",")) <= set(PARTS)
    return bool(word) and (at_the_front or word.isupper() or any(mark in word for mark in "/[0123456789*"))


def _literal(option: command_option.Option, word: str) -> str:
    if option.type in (int, float):
        return word.strip("'\"").replace(",", "")
    # A placeholder, such as DIR, stands for an expression.
    return word if word[:1] in ("'", '"') or word.isupper() else f'"{word}"'


_SAID: Final = {
    r"since 1970, or ISO with (?:its )?zone": "since 1970, or an ISO text or ``datetime`` with its zone",
    r"options given here win": "keywords win",
    r" \(repeatable\)|; repeat it for [^.]*": "; one, or a sequence",
    r"\bFILE\b": "this file",
    r"(__\w+__|local\[\*\])": r"``\1``",
}
"""words of ``--help`` that are others in Python"""
_SESSION: Final = (
    "The session to work in. It is not stopped. Default: the session that is there, or else one of ``master`` for this call "
    "alone."
)


def _argument_text(command: str, option: command_option.Option) -> str:
    """Return what the docstring of a command's function says of an option: what the table has, in Python's words."""
    text = option.text or option.help
    if option.default_text and "Default: " not in text:
        text += f". Default: {option.default_text}"
    for pattern, words in _SAID.items():
        text = re.sub(pattern, words, text)
    places = {"STORE": "store", "DIR": "to" if command in ("fetch", "import") else "out"}
    text = re.sub(r"\b(STORE|DIR)\b([\w./]*\w)?", lambda match: f"``{places[match[1]]}{match[2] or ''}``", text)
    text = re.sub(r"(?<![\w`-])--([a-z][a-z-]*)", lambda match: f"``{match[1].replace('-', '_')}``", text)
    # The name of a setting of a broker stays as it is.
    return f"{text if re.match('[a-z]+[A-Z]', text) else text[0].upper() + text[1:]}."


def _explained(function: Callable[..., object]) -> str:
    """Return the docstring of a function, without its margin, with what its keywords mean."""
    command = command_of(function.__name__)
    own = option_table.options_of(command)
    texts = {
        keyword: _SESSION if keyword == "spark" else _argument_text(command, own["files" if keyword == "file" else keyword])
        for keyword in inspect.signature(function).parameters
    }
    # From Python 3.13 on the compiler takes the margin away.
    docstring = inspect.cleandoc(function.__doc__ or "")
    wrap = functools.partial(textwrap.fill, width=120, initial_indent=" " * 4, subsequent_indent=" " * 8)
    arguments = "\n".join(wrap(f"{keyword}: {text}", break_on_hyphens=False) for keyword, text in texts.items())
    return docstring.replace("\nReturns:", f"\nArgs:\n{arguments}\n\nReturns:", 1)


def says_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of the Python API that explains its keywords as the table of options does, and names them in errors."""
    function.__doc__ = _explained(function)

    @functools.wraps(function)
    def run(*words: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*words, **keywords)
        except ReindexError as error:
            error.args = (in_keywords(str(error), function.__name__), *error.args[1:])
            raise

    return run


# ----------------------------------------------------------------------------------------------------------------------- ending
# How a run of the API ends: with its result, or with an error of the package that has one.

AnyResult = TypeVar("AnyResult", bound=Result)


def result_of(ended: Ended[AnyResult]) -> AnyResult:
    """Return the result of a run. Raises ReindexError where the command would end with 1, 2 or 5, and KeyboardInterrupt."""
    result, error = ended.result, ended.error
    result.keep_lists()
    if error is not None and (ended.interrupted or was_interrupted(error)):
        raise KeyboardInterrupt from error
    if error is None or result.error is None:
        return result
    if isinstance(error, ReindexError):
        error.result = result
        raise error
    raised = ReindexError(result.error)
    raised.result = result
    raise raised from error


# ---------------------------------------------------------------------------------------------------------------------- options
# ``options`` of the Python API.


def options(command: Literal["build", "verify"], text: str) -> dict[str, Any]:
    """Return the keyword arguments that options of the command line stand for, for a job or a notebook that is given a text.

    Args:
        command: The function that they are for: ``build`` or ``verify``.
        text: Options as on the command line, quoted as for a shell. An empty text has none.

    Returns:
        Keyword arguments by name.

    Raises:
        UsageError: The command has no such option, the option has no such value, or the command is another (exit status 2).

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.options("build", "--only index,checkpoint --hash-slots 500 --lmq")
        {'only': ('index', 'checkpoint'), 'hash_slots': 500, 'lmq': True}
    """
    if command not in ("build", "verify"):
        raise UsageError(f"options: no command {command!r}: take 'build' or 'verify'")
    return keywords_in(command_options.parser_of(command), text)
