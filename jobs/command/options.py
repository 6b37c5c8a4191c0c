"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any, NoReturn

from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {escape(message, 1000)}: see --help")


def command_parser(prog: str, description: str, *, absent: bool = False) -> Parser:
    """Of one command. ``absent``: options left out are absent from the result, so that others can tell."""
    return Parser(
        prog=prog,
        description=description,
        argument_default=argparse.SUPPRESS if absent else None,
        allow_abbrev=False,
        formatter_class=_wide_help,
    )


def checked(check: Any) -> Any:
    def word(text: str) -> str:
        check(text)
        return text

    return word


def any_text() -> None:
    """From now on stdout shows what its encoding lacks as an escape, instead of failing in the middle."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _wide_help(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=110)
