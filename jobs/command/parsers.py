"""The parser of each command, by the command's name. What none asks for is not imported."""

from __future__ import annotations

import importlib
from typing import Final

from rocketmq_reindex.jobs.command.options import Parser

_PACKAGES: Final = {
    "info": "describing", "build": "building", "query": "querying", "inspect": "inspecting", "verify": "verifying",
    "preflight": "preflighting", "repair": "repairing", "fetch": "fetching", "report": "reporting",
}  # fmt: skip
"""The package that has the options of each command, in its module ``options``."""


def parser_of(command: str) -> Parser:
    """Return the parser of a command."""
    found: Parser = importlib.import_module(f"rocketmq_reindex.jobs.{_PACKAGES[command]}.options").build_parser()
    return found


def all_parsers() -> dict[str, Parser]:
    """Return the parsers of all commands, by their names."""
    return {command: parser_of(command) for command in _PACKAGES}
