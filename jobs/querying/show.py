"""Messages as they are shown: every field as a line of JSON, or a table for people."""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.querying.options import Query
from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import printable
from rocketmq_reindex.storage_format.plurals import form
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, FLAG_MULTI_TAGS, FLAG_NEED_UNWRAP, Host, Message

_FLAGS: Final = {
    FLAG_COMPRESSED: "compressed",
    FLAG_MULTI_TAGS: "multi-tags",
    FLAG_NEED_UNWRAP: "need-unwrap",
    r.FLAG_INNER_BATCH: "inner-batch",
}
_TRANSACTIONS: Final = {
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}
_LOW31: Final = 0x7FFFFFFF


class Shown(NamedTuple):
    """A message, and the queue offset at which it was found, if it was."""

    message: Message
    offset: int | None


@dataclass(frozen=True)
class Body:
    """``data`` is unpacked. ``whole``: nothing was left out; ``crc`` is None where it was not checked."""

    data: bytes
    whole: bool
    crc: bool | None
    fault: str = ""


def read_body(message: Message, log: StoreLog, most: int, notes: Notes) -> Body:
    """The first ``most`` bytes of a body, unpacked; of a broken one what there is."""
    try:
        raw = log.body(message, most)
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

    data, more, fault = unpack(raw, message.compression, most)
    if cut:
        return Body(data, False, crc)
    if fault:
        notes.add("body that does not unpack", f"offset {message.phy_offset}: {fault}", lost=False)
    return Body(data, not more and not fault, crc, fault)


def host_text(host: Host) -> str:
    """``10.0.0.1:10911`` or ``[2001:db8::1]:10911``."""
    import ipaddress

    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"


def fields(message: Message, offset: int | None = None) -> dict[str, Any]:
    """Every field but the body, by the names that RocketMQ's tools use."""
    flags = [name for bit, name in _FLAGS.items() if message.sys_flag & bit]
    transaction = _TRANSACTIONS.get(message.sys_flag & r.FLAG_TRANSACTION_MASK)
    found: dict[str, Any] = {
        "physicalOffset": message.phy_offset,
        "size": message.size,
        "version": message.version,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
    }
    if offset is not None:
        found["servedAt"] = offset
    return found | {
        "storeTimestamp": message.store_time,
        "storeTime": show_time(message.store_time),
        "storeHost": host_text(message.store_host),
        "bornTimestamp": message.born_time,
        "bornTime": show_time(message.born_time),
        "bornHost": host_text(message.born_host),
        "msgId": message.message_id,
        "uniqueKey": message.unique_key,
        "keys": message.keys,
        "tags": message.tags,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "kinds": flags + ([transaction] if transaction else []),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset,
        "properties": message.properties,
        "bodyLength": message.body_size,
        "bodyCrc": message.body_crc,
        "compression": message.compression,
    }


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(word)
    return value


def body_value(data: bytes, how: str) -> tuple[str, Any]:
    """(format, value): as asked for, or the next that is possible of JSON, text and hex."""
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
    """One line of plain ASCII."""
    try:
        return json.dumps(value, separators=(", ", ": ")).replace("\x7f", "\\u007f")
    except RecursionError:
        return json.dumps(value | {"bodyFormat": "none", "body": None})


def show(found: Iterable[Shown], log: StoreLog, asked: Query, notes: Notes) -> int:
    """Print what is found as it comes (a table when all is there); returns how many messages."""
    rows: list[dict[str, Any]] = []
    count = 0
    for message, offset in found:
        count += 1
        row = fields(message, offset)
        if asked.body != "none":
            body = read_body(message, log, asked.body_max, notes)
            row["bodyCrcMatches"] = body.crc
            row["bodyTruncated"] = not body.whole
            row["bodyFormat"], row["body"] = body_value(body.data, asked.body)
        if asked.json:
            print(to_json(row))
        else:
            rows.append(row if count < 2 else _short(row))
    if rows:
        from rocketmq_reindex.jobs.querying.table import many, one

        if len(rows) == 1:
            one(rows[0])
        else:
            rows[0] = _short(rows[0])
            many(rows, elastic="body")
    elif not count and not asked.json:
        print("nothing found", file=sys.stderr)
    sys.stdout.flush()
    return count


_KEYS_MAX: Final = 60
_PREVIEW: Final = 40


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """What of a message stands in a table of many."""
    queue = f"{row['topic']}/{row['queueId']}/{row['queueOffset']}"
    served = row.get("servedAt", row["queueOffset"])
    kept = {
        "physicalOffset": row["physicalOffset"],
        "topic/queue/offset": queue if served == row["queueOffset"] else f"{queue} at {served}",
        "storeTime": row["storeTime"],
        "uniqueKey": row["uniqueKey"],
        "keys": _first_keys(row["keys"]),
        "tags": row["tags"],
    }
    if "body" in row:
        kept["body"] = (
            f"{row['bodyLength']} {form(row['bodyLength'], 'byte', 'bytes')}"
            if row["bodyFormat"] == "hex"
            else preview(row, _PREVIEW)
        )
    return kept


def _first_keys(keys: list[str]) -> str | None:
    """Whole keys, the first alone if it is long, and how many more there are: half a key finds nothing."""
    if not keys:
        return None
    kept = 1
    while kept < len(keys) and sum(map(len, keys[: kept + 1])) + kept <= _KEYS_MAX:
        kept += 1
    return " ".join(keys[:kept]) + (f" ... ({len(keys) - kept} more)" if kept < len(keys) else "")


def preview(row: dict[str, Any], most: int) -> str:
    """The beginning of a body, to look at."""
    body = row["body"]
    text = body if isinstance(body, str) else to_json(body)
    text = f"0x{text}" if row["bodyFormat"] == "hex" and text else text
    more = len(text) > most or row["bodyTruncated"]
    return printable(text[:most]) + ("..." if more else "")
