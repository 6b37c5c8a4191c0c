"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from typing import NoReturn

from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {escape(message, 1000)}: see --help")


def command_parser(prog: str, description: str, *, absent: bool = False) -> Parser:
    """The parser of one command. ``absent``: options left out are absent from its result."""
    return Parser(
        prog=prog,
        description=description,
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


def _wide_help(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=110)
