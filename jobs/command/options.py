"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from rocketmq_reindex.jobs.command.help import GROUPS, TITLES, epilog
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape, near_names

_MISSING: Final = "the following arguments are required: "
"""how argparse begins the message on arguments that are not there"""
_SIMILAR: Final = 0.6
_PLACES: Final = {"DIR": "folder", "URI": "folder", "STORE": "store", "STORE2": "store", "FILE": "file", "MANIFEST": "file"}
"""what is named by the options that have such a value"""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process, and puts each option into its group (``GROUPS``).

    The error has a line for each word that is wrong.
    """

    def __init__(self, *words: Any, **settings: Any) -> None:
        self._given: list[str] = []
        self._wrong: list[str] = []
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        super().__init__(*words, **settings)

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        name = settings.get("dest", names[0].removeprefix("--").replace("-", "_"))
        title = TITLES.get(name, "") if names[0].startswith("--") else ""
        return self._group(title).add_argument(*names, **settings) if title else super().add_argument(*names, **settings)

    def _group(self, title: str) -> argparse._ArgumentGroup:
        found = self._groups.get(title)
        if found is None:
            found = self._groups[title] = self.add_argument_group(title)
            made = [group for group in self._action_groups if group.title not in GROUPS]
            # Behind arguments and --help, before the groups that a command makes of its own.
            self._action_groups[:] = [*made[:2], *(self._groups[each] for each in GROUPS if each in self._groups), *made[2:]]
        return found

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if wrong := [*self._wrong, *self._unknown(rest)]:
            raise UsageError("\n".join(wrong))
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given, self._wrong = [str(word) for word in (sys.argv[1:] if args is None else args)], []
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "" in arg_strings and (what := _PLACES.get(str(action.metavar))):
            # A variable of a script that is not set: as a path it would be the working folder.
            self._wrong.append(f"{action.option_strings[0]}: is empty: name a {what}")
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            if isinstance(action, argparse._SubParsersAction):
                raise
            self._wrong.append(self._line(str(error)))
        except UsageError as error:
            self._wrong.append(str(error))
        # The words behind it are looked at, too. Nothing is done with this value.
        return argparse.SUPPRESS

    def error(self, message: str) -> NoReturn:
        # What stands behind the name of a command is for its own parser.
        words = self._given[:1] if self._subparsers is not None else self._given
        unknown = self._unknown([word for word in words if word.startswith("--")])
        if unknown and self._subparsers is not None:
            raise UsageError("\n".join(unknown))
        # A missing option may be there, under a misspelt name.
        missing = message.removeprefix(_MISSING).split(", ") if message.startswith(_MISSING) else [message]
        is_there = all(any(f"did you mean {name}" in line for line in unknown) for name in missing)
        raise UsageError("\n".join([*self._wrong, *unknown, *([] if is_there else [self._line(message)])]))

    def _line(self, message: str, meant: str = "") -> str:
        return f"{self.prog}: {escape(message, 1000)}{meant or self._command_meant(message)}: see --help"

    def _unknown(self, words: list[str]) -> list[str]:
        """A line for each option that the parser does not know, with those near it, and one for all else that is too much."""
        lines, rest, is_value = list[str](), list[str](), False
        options = {name.removeprefix("--"): name for name in self._option_string_actions if name.startswith("--")}
        for word in words:
            name = word.partition("=")[0]
            is_option = len(name) > 2 and name.startswith("--")
            if is_option and name not in self._option_string_actions:
                near = [options[each] for each in near_names(name.removeprefix("--"), options, 2, _SIMILAR)]
                meant = f" (did you mean {' or '.join(near)}?)" if near else ""
                lines.append(self._line(f"unrecognized arguments: {name}", meant))
            elif not is_option and not is_value:
                rest.append(word)
            is_value = is_option and "=" not in word
        return [*lines, *([self._line(f"unrecognized arguments: {' '.join(rest)}")] if rest else [])]

    def _command_meant(self, message: str) -> str:
        """Which command a misspelt one may stand for."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and self._given and "invalid choice" in message:
                near = near_names(self._given[0], action.choices, 2)
                return f" (did you mean {' or '.join(near)}?)" if near else ""
        return ""


def command_parser(prog: str, description: str, *, absent: bool = False) -> Parser:
    """The parser of one command. ``absent``: options left out are absent from its result."""
    return Parser(
        prog=prog,
        description=description,
        epilog=epilog(prog.rpartition(" ")[2]),
        argument_default=argparse.SUPPRESS if absent else None,
        allow_abbrev=False,
        formatter_class=_wide_help,
    )


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """The type of an option whose text is kept as it is, once ``check`` has taken it."""

    def text_of(text: str) -> str:
        check(text)
        return text

    return text_of


def any_text() -> None:
    """From now on stdout shows a character that its encoding lacks as an escape, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def no_more_output() -> None:
    """The reader of stdout has closed the pipe. From now on nothing is written to it, also not when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Help(argparse.HelpFormatter):
    """Lines of an epilog stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _wide_help(prog: str) -> argparse.HelpFormatter:
    return _Help(prog, max_help_position=32, width=110)
