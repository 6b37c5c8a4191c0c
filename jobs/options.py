"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from storage_format.errors import UsageError
from storage_format.names import escape


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {escape(message, 1000)}: see --help")


def checked(check: Any) -> Any:
    def word(text: str) -> str:
        check(text)
        return text

    return word


def wide_help(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=110)
