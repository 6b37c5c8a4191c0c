"""Annotated bytes of a store that RocketMQ wrote, as docs/explanation/format.md shows them."""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.checkpoints import CHECKPOINT_LAYOUT, SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_LAYOUT, SLOT_SIZE
from rocketmq_reindex.storage_format.layouts import Layout, key_hash
from rocketmq_reindex.storage_format.queue.units import UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message
from tests.golden.stores import unpack

STORE: Final = "basic-5.5"
"""It has every field of the checkpoint, and items of TAGS."""
_WIDTH: Final = 8
_MOST_LINES: Final = 4
_LEAST_BODY: Final = 8
"""Bytes of a body that is worth showing"""
NAMES: Final = {"item": "slot"}
"""What the page calls fields that RocketMQ's code has no name for, by column."""


class Row(NamedTuple):
    """Some bytes of a file, the name of the field, and what they say."""

    data: bytes
    field: str
    value: str


class Dump(NamedTuple):
    """Rows that follow each other in a file of the store, from its byte ``start`` on."""

    path: str
    start: int
    rows: tuple[Row, ...]

    def text(self, title: str) -> str:
        """Return the dump as Markdown: a line on where it lies, and a block of code."""
        at, lines = 0, list[str]()
        for row in self.rows:
            lines += _lines(at, row)
            at += len(row.data)
        where = f"`{self.path}`, bytes {self.start:,} to {self.start + at - 1:,}"
        return f"{title} ({where}):\n\n```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"


def _lines(at: int, row: Row) -> Iterator[str]:
    """The first of them has the field's name and its value."""
    parts = [row.data[k : k + _WIDTH] for k in range(0, len(row.data), _WIDTH)]
    shown = parts if len(parts) <= _MOST_LINES else parts[: _MOST_LINES - 1]
    for number, part in enumerate(shown):
        said = f"{row.field:<26}{row.value}" if number == 0 else ""
        yield f"{at + number * _WIDTH:>5}  {part.hex(' '):<{3 * _WIDTH}} {said}"
    if left := sum(map(len, parts[len(shown) :])):
        yield f"{at + len(shown) * _WIDTH:>5}  ... {left:,} more bytes"


def _time(milliseconds: int) -> str:
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)
    return f"{milliseconds}: {moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


def _fields(layout: Layout, data: bytes, said: Mapping[str, Callable[[int], str]]) -> Iterator[Row]:
    """A row for each field of a layout. ``said`` tells what a value is, by column."""
    ends = [*layout.at.values(), layout.size]
    for k, (column, value) in enumerate(zip(layout.columns, layout.unpack(data), strict=True)):
        yield Row(data[ends[k] : ends[k + 1]], NAMES.get(column, layout.names[k]), said[column](value))


def _record(data: bytes, message: Message) -> Iterator[Row]:
    born, stored = data[r.AT_BORN_HOST : r.AT_STORE_TIMESTAMP], data[r.AT_STORE_HOST : r.AT_RECONSUME_TIMES]
    yield from _fields(
        r.HEAD_LAYOUT,
        data[: r.AT_BORN_HOST],
        {
            "size": lambda size: f"{size} bytes, this field and all that follows",
            "magic": lambda magic: f"{magic}: a record of V1",
            "body_crc": lambda crc: f"{crc}: CRC-32 of the body",
            "queue_id": lambda queue: f"{queue}: queue of the topic",
            "flag": lambda flag: f"{flag}: the application's own",
            "queue_offset": lambda offset: f"{offset}: place in the queue, so its unit is at byte {offset * UNIT_SIZE:,} of it",
            "phy_offset": lambda offset: f"{offset}: place in the log, where the record itself lies",
            "sys_flag": lambda flag: f"{flag}: plain, not compressed, both hosts IPv4",
            "born_time": _time,
        },
    )
    yield Row(born, "BORNHOST", _host(born))
    yield Row(data[r.AT_STORE_TIMESTAMP : r.AT_STORE_HOST], "STORETIMESTAMP", _time(message.store_time))
    yield Row(stored, "STOREHOST", _host(stored))
    yield from _fields(
        r.TAIL_LAYOUT,
        data[r.AT_RECONSUME_TIMES : r.HEADER_SIZE],
        {
            "reconsume_times": lambda times: f"{times}: no retry",
            "prepared_offset": lambda offset: f"{offset}: no transaction",
            "body_length": lambda length: f"{length} bytes of body follow",
        },
    )
    topic = message.topic.encode()
    body, rest = data[r.HEADER_SIZE :][: message.body_size], data[r.HEADER_SIZE + message.body_size :]
    yield Row(body, "BODY", body.decode())
    yield Row(rest[:1], "TOPICLENGTH", f"{len(topic)} (two bytes in a record of V2)")
    yield Row(rest[1:][: len(topic)], "TOPIC", message.topic)
    properties = rest[1 + len(topic) + 2 :]
    yield Row(rest[1 + len(topic) :][:2], "PROPERTIESLENGTH", str(len(properties)))
    for piece in re.findall(rb"[^\x02]+\x02?", properties):
        name, _, value = piece.rstrip(b"\x02").decode().partition("\x01")
        yield Row(piece, "property", f"{name}, 01, {value}" + (", 02" if piece.endswith(b"\x02") else ""))


def _host(data: bytes) -> str:
    return f"{ipaddress.ip_address(data[:4])}, port {int.from_bytes(data[4:], 'big')}"


def _messages(segment: bytes) -> Iterator[Message]:
    at = 0
    while isinstance(found := read_message(_reading(segment, at), at, len(segment) - at), Message):
        yield found
        at += found.size


def _reading(segment: bytes, start: int) -> Callable[[int, int], bytes]:
    return lambda at, count: segment[start + at :][:count]


def _chosen(segment: bytes) -> Message:
    """The smallest record with every kind of key and a body of text, and with nothing that a reader has to know first."""

    def plain(message: Message) -> bool:
        keys = message.unique_key and message.keys == [message.properties.get("KEYS")] and len(message.tags or "") > 1
        body = segment[message.phy_offset + message.body_at :][: message.body_size]
        return bool(keys and message.sys_flag == 0 and message.topic[0] != "%" and len(body) >= _LEAST_BODY and body.isascii())

    return min(filter(plain, _messages(segment)), key=lambda message: message.size)


@functools.cache
def dumps() -> dict[str, Dump]:
    """Return the dumps of the smallest plain record in the first segment of ``STORE``, and of what was derived from it."""
    with tempfile.TemporaryDirectory() as folder:
        store = unpack(STORE, Path(folder))
        sizes = store.sizes()
        log = min((store.path / "commitlog").iterdir())
        segment = log.read_bytes()
        message = _chosen(segment)
        place = message.phy_offset
        record = Dump(f"commitlog/{log.name}", place, tuple(_record(segment[place : place + message.size], message)))
        file, at = divmod(message.queue_offset * UNIT_SIZE, sizes["cq_file_size"])
        queue = Path("consumequeue", message.topic, str(message.queue_id), f"{file * sizes['cq_file_size']:020d}")
        unit = Dump(str(queue), at, tuple(_unit((store.path / queue).read_bytes()[at : at + UNIT_SIZE], message)))
        index = min((store.path / "index").iterdir())
        slot, item = _item(index, sizes["hash_slots"], message)
        checkpoint = (store.path / "checkpoint").read_bytes()
    return {
        "record": record, "unit": unit, "slot": slot, "item": item,
        "checkpoint": Dump("checkpoint", 0, tuple(_checkpoint(checkpoint))),
    }  # fmt: skip


def _unit(data: bytes, message: Message) -> Iterator[Row]:
    return _fields(
        UNIT_LAYOUT,
        data,
        {
            "phy_offset": lambda offset: f"{offset}: the record's PHYSICALOFFSET",
            "size": lambda size: f"{size}: its TOTALSIZE",
            "tags_code": lambda code: f'{code}: Java\'s hash code of "{message.tags}"',
        },
    )


def _item(path: Path, slots: int, message: Message) -> tuple[Dump, Dump]:
    """Returns the slot of the record's key, and the key's item."""
    data, key = path.read_bytes(), message.keys[0]
    hashed = key_hash(message.topic, key)
    slot_at = HEADER_SIZE + SLOT_SIZE * (hashed % slots)
    newest = data[slot_at : slot_at + SLOT_SIZE]
    begin = int.from_bytes(data[:8], "big")
    first = HEADER_SIZE + SLOT_SIZE * slots
    number, steps = SLOT_LAYOUT.unpack(newest)[0], 0
    while True:
        at = first + ITEM_SIZE * number
        found_hash, offset, _, before = ITEM_LAYOUT.unpack_from(data, at)
        if (found_hash, offset) == (hashed, message.phy_offset):
            break
        number, steps = before, steps + 1
    where = "the item below" if not steps else f"{steps} {'step' if steps == 1 else 'steps'} before the item below"
    slot_rows = _fields(
        SLOT_LAYOUT, newest, {"item": lambda item: f"{item}: the newest item of slot {hashed % slots}, {where}"}
    )
    item_rows = _fields(
        ITEM_LAYOUT,
        data[at : at + ITEM_SIZE],
        {
            "key_hash": lambda value: f'{value}: of "{message.topic}#{key}"; modulo {slots} slots it is {value % slots}',
            "phy_offset": lambda offset: f"{offset}: the record's PHYSICALOFFSET",
            "time_diff": lambda seconds: f"{seconds}: seconds from beginTimestamp ({begin}) to STORETIMESTAMP",
            "prev": lambda item: f"{item}: the item of the slot before this one" if item else "0: the first of its slot",
        },
    )
    name = f"index/{path.name}"
    return Dump(name, slot_at, tuple(slot_rows)), Dump(name, at, tuple(item_rows))


def _checkpoint(data: bytes) -> Iterator[Row]:
    times = ("physic", "logics", "index")
    said = {column: _time if column in times else _offset for column in CHECKPOINT_LAYOUT.columns}
    yield from _fields(CHECKPOINT_LAYOUT, data[: CHECKPOINT_LAYOUT.size], said)
    yield Row(data[CHECKPOINT_LAYOUT.size : CHECKPOINT_SIZE], "(zeros)", "up to 4,096 bytes")


def _offset(value: int) -> str:
    return f"{value}: a physical offset"


TITLES: Final = {
    "record": "One record",
    "unit": "The unit of that record",
    "slot": "The slot of that record's key",
    "item": "The item of that key",
    "checkpoint": "The checkpoint of that store",
}


def shown(*names: str) -> str:
    """Return the dumps of these names as Markdown."""
    return "\n".join(dumps()[name].text(TITLES[name]) for name in names)
