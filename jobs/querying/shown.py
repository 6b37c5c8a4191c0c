"""Messages for people: their bodies as text, JSON or hex, and tables of them.

All text comes from the log: controls in it are escaped, and no value is ever broken over lines.
"""

import json
import math
import shutil
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.meaning import BODY_MAX, needs_body
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import printable, reason

# ----------------------------------------------------------------------------------------------------------------------- bodies
# Bodies of messages: read, unpacked, and as text, JSON or hex.

_LOW31: Final = 0x7FFFFFFF


@dataclass(frozen=True)
class Body:
    """``data`` is unpacked. ``whole``: nothing was left out; ``crc`` is None where it was not checked."""

    data: bytes
    whole: bool
    crc: bool | None
    fault: str = ""


def read_body(message: Message, log: StoreLog, size_max: int, notes: Notes) -> Body:
    """Return the first ``size_max`` bytes of a body, unpacked; of a broken one what there is."""
    try:
        raw = log.body(message, size_max)
    except (OSError, InputError) as error:
        notes.add("unreadable body", f"offset {message.phy_offset}: its body: {reason(error)}")
        return Body(b"", False, None, reason(error))
    cut = len(raw) < message.body_size
    crc = None if cut else zlib.crc32(raw) & _LOW31 == message.body_crc
    if crc is False:
        notes.add("wrong CRC", f"offset {message.phy_offset}: {r.REASONS[r.BAD_BODY_CRC]}", lost=False)
    if message.compression is None or not raw:
        return Body(raw, not cut, crc)
    from rocketmq_reindex.udfs.messages.unpack_body import unpack

    data, is_longer, fault = unpack(raw, message.compression, size_max)
    if cut:
        return Body(data, False, crc)
    if fault:
        notes.add("body that does not unpack", f"offset {message.phy_offset}: {fault}", lost=False)
    return Body(data, not is_longer and not fault, crc, fault)


def told_body(message: Message, read: Callable[[int], bytes]) -> bytes:
    """Return the body of a record whose meaning stands in it, unpacked; none of other records, and where it cannot be read.

    ``read`` gives the stored body's first bytes, as many as it is asked for.
    """
    if not needs_body(message):
        return b""
    try:
        raw = read(BODY_MAX)
    except (OSError, InputError):
        return b""
    if message.compression is None:
        return raw
    from rocketmq_reindex.udfs.messages.unpack_body import unpack

    return unpack(raw, message.compression, BODY_MAX).data


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def body_value(data: bytes, how: str) -> tuple[str, Any]:
    """Return (format, value): as asked for, or the next that is possible of JSON, text and hex."""
    if how == "json":
        try:
            return "json", json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            how = "text"
    if how == "text":
        try:
            return "text", data.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return "hex", data.hex()


def to_json(value: Any) -> str:
    """Return one line of plain ASCII."""
    try:
        return json.dumps(value, separators=(", ", ": ")).replace("\x7f", "\\u007f")
    except RecursionError:
        return json.dumps(value | {"bodyFormat": "none", "body": None})


def preview(row: dict[str, Any], length_max: int) -> str:
    """Return the beginning of a body, to look at."""
    body = row["body"]
    text = body if isinstance(body, str) else to_json(body)
    text = f"0x{text}" if row["bodyFormat"] == "hex" and text else text
    is_longer = len(text) > length_max or row["bodyTruncated"]
    return printable(text[:length_max]) + ("..." if is_longer else "")


# ----------------------------------------------------------------------------------------------------------------------- tables
# In a file or pipe a row is one line, however long. On a terminal where the rows are too wide each row is a record instead,
# a line a field: ids, keys and offsets can be copied there, too.

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
