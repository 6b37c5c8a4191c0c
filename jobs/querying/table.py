"""Tables for people. All text comes from the log: controls in it are escaped, and no value is ever broken over lines.

In a file or pipe a row is one line, however long. On a terminal where the rows are too wide each row is a record instead,
a line a field: ids, keys and offsets can be copied there, too.
"""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.querying.bodies import preview
from rocketmq_reindex.storage_format.showing import printable

_BODY_MAX: Final = 1000
_LABEL_MAX: Final = 32
"""Property names come from the log: a longer one moves its own value alone."""
_ELASTIC_MIN: Final = 16
_GAP: Final = 2
_HIDDEN: Final = ("bodyFormat", "bodyTruncated")


def terminal_width() -> int | None:
    """Return columns of the terminal; None where stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def cell(value: Any) -> str:
    """Return a value that came from a log."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return printable(" ".join(str(part) for part in value)) or "-"
    return printable(str(value))


def one_lines(row: dict[str, Any]) -> list[str]:
    """Return a single message, a line for each field."""
    lines: list[tuple[str, str]] = []
    for name, value in row.items():
        if name in _HIDDEN:
            continue
        if name == "body":
            lines.append((f"body ({row['bodyFormat']})", preview(row, _BODY_MAX)))
        elif name == "meaning":
            lines.append((name, printable(value["text"])))
        elif name == "properties":
            lines += [(f"  {printable(key)}", cell(text)) for key, text in value.items()]
        else:
            lines.append((name, cell(value)))
    return record_lines(lines)


def record_lines(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values, a line for each."""
    pairs = list(lines)
    label = min(_LABEL_MAX, max((_columns(name) for name, _ in pairs), default=0))
    return [f"{_padded(name, label)}{' ' * _GAP}{text}".rstrip() for name, text in pairs]


def row_lines(rows: Sequence[dict[str, Any]], elastic: str = "", width: int | None = None) -> list[str]:
    """Return a line for each row, or for each field where rows are wider than ``width``. Values of ``elastic`` may be cut to
    fit."""
    names = list(rows[0])
    numbers = [all(isinstance(row[name], int) for row in rows) for name in names]
    cells = [[cell(row[name]) for name in names] for row in rows]
    widths = [max(map(_columns, column)) for column in zip(names, *cells, strict=True)]
    if width is not None and elastic in names:
        at = names.index(elastic)
        room = width - sum(widths) - _GAP * (len(names) - 1) + widths[at]
        as_records = width - _GAP - max(map(_columns, names))
        elastic_width = max(room if room >= _ELASTIC_MIN else as_records, _ELASTIC_MIN)
        for line in cells:
            line[at] = _cut(line[at], elastic_width)
        widths[at] = min(widths[at], elastic_width)
    if width is not None and sum(widths) + _GAP * (len(names) - 1) > width:
        records = [record_lines(zip(names, line, strict=True)) for line in cells]
        return [line for number, record in enumerate(records) for line in ([""] * (number > 0) + record)]
    lines = []
    for line in (names, ["-" * columns for columns in widths], *cells):
        padded = (_padded(*padding) for padding in zip(line, widths, numbers, strict=True))
        lines.append((" " * _GAP).join(padded).rstrip())
    return lines


def _columns(text: str) -> int:
    """Return how wide a terminal shows a text."""
    if text.isascii():
        return len(text)
    return sum(_wide(c) for c in text)


def _wide(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _padded(text: str, width: int, right: bool = False) -> str:
    blanks = " " * (width - _columns(text))
    return blanks + text if right else text + blanks


def _cut(text: str, columns_max: int) -> str:
    if _columns(text) <= columns_max:
        return text
    kept, used = "", 0
    for c in text:
        used += _wide(c)
        if used > columns_max - 3:
            break
        kept += c
    return f"{kept}..."
