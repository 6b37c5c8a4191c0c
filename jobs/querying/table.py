"""Tables for people. All text comes from the log: nothing in it is taken for markup, and controls are escaped."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.querying.show import preview
from storage_format.names import printable

_WIDTH: Final = 160
"""of a file or pipe"""
_BODY_MAX: Final = 1000
_HIDDEN: Final = ("bodyFormat", "bodyTruncated")


def console() -> Console:
    """stdout, without colours of its own where it is no terminal."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def cell(value: Any) -> Text:
    """A value that came from a log."""
    if value is None:
        return Text("-")
    if isinstance(value, list):
        return Text(printable(" ".join(str(part) for part in value)) or "-")
    return Text(printable(str(value)))


def one(row: dict[str, Any]) -> None:
    """A single message: a line a field."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in row.items():
        if name in _HIDDEN:
            continue
        if name == "body":
            table.add_row(f"body ({row['bodyFormat']})", Text(preview(row, _BODY_MAX)))
        elif name == "properties":
            for key, text in value.items():
                table.add_row(Text(f"  {printable(key)}"), cell(text))
        else:
            table.add_row(name, cell(value))
    console().print(table)


def many(rows: list[dict[str, Any]]) -> None:
    """A line a message."""
    names = list(rows[0])
    table = Table(box=SIMPLE, pad_edge=False)
    for name in names:
        numbers = all(isinstance(row[name], int) for row in rows)
        whole = numbers or name.endswith("Time")
        table.add_column(name, justify="right" if numbers else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(cell(row[name]) for name in names))
    console().print(table)
