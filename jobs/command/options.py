"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from rocketmq_reindex.jobs.command.help import GROUPS, TITLES, epilog
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape, near_names


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process, and puts each option into its group (``GROUPS``)."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        self._given: list[str] = []
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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = [str(word) for word in (sys.argv[1:] if args is None else args)]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {escape(message, 1000)}{self._meant(message)}: see --help")

    def _meant(self, message: str) -> str:
        """Which option or choice a misspelt word may stand for. A missing argument may be there, under a misspelt name."""
        for word in self._given:
            name = word.partition("=")[0]
            if name.startswith("--") and len(name) > 2 and name not in self._option_string_actions:
                near = near_names(name, [each for each in self._option_string_actions if each.startswith("--")], 2, 0.6)
                return f" ({escape(name, 100)}: did you mean {' or '.join(near)}?)" if near else ""
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
