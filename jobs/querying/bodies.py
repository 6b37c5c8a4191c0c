"""Bodies of messages: read, unpacked, and as text, JSON or hex."""

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.meaning import BODY_MAX, needs_body
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import printable, reason

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
