"""The good records of a commitlog, walked plainly: each is whole, lies where it says, and has its CRCs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.reference import java, records as r
from tests.reference.names import HIGHEST_QUEUE_OFFSET

Item = tuple[int, int]
"""key hash, physical offset"""


@dataclass(frozen=True)
class LogRecord:
    """What a start makes of a record depends on this."""

    offset: int
    size: int
    topic: str
    queue: int
    queue_offset: int
    sysflag: int
    properties: dict[str, str]

    @property
    def gets_unit(self) -> bool:
        """``CommitLogDispatcherBuildConsumeQueue``."""
        return self.sysflag & r.TRANSACTION_MASK in (0, r.COMMIT)

    def items(self, tags: bool) -> list[Item]:
        """The items that ``IndexService.buildIndex`` makes; with ``tags`` (5.4 on) one for TAGS, too."""
        if self.sysflag & r.TRANSACTION_MASK == r.ROLLBACK:
            return []
        found = self.properties
        keys = [found["UNIQ_KEY"]] if "UNIQ_KEY" in found else []
        keys += [key for key in found.get("KEYS", "").split(" ") if key]
        keys += [f"T#{found['TAGS']}"] if tags and "TAGS" in found else []
        return [(_key_hash(f"{self.topic}#{key}"), self.offset) for key in keys]


@lru_cache(1 << 16)
def _key_hash(key: str) -> int:
    """``IndexFile.indexKeyHashMethod``."""
    return max(0, java.int32(abs(java.hash_code(key))))


def read_log(folder: Path, release: str, crc: bool, own_crc: bool = True) -> list[LogRecord]:
    """All of them, in the segments' order; without ``crc`` a record that follows on a good one needs none.

    Without ``own_crc`` its ``__CRC32#`` may be wrong.
    """
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found: list[LogRecord] = []
    for path in paths:
        if path.is_file() and path.name.isdigit():
            found += _walk(path.read_bytes(), int(path.name), release, crc, crc and own_crc)
    return found


def _walk(data: bytes, base: int, release: str, crc: bool, own_crc: bool) -> Iterator[LogRecord]:
    at, sound = 0, True
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        # A body may hold a filler that fits: behind damage none is taken for one.
        if sound and magic == r.MAGIC_BLANK and size == len(data) - at:
            return
        framed, record = _parse(data, at, base, release, crc or not sound)
        if record and own_crc and not _own_crc_holds(data[at : at + framed], record.properties):
            record = None
        if record:
            yield record
        # Nothing inside a record is looked at, as long as its length agrees with its parts.
        sound = record is not None
        at = at + framed if framed else _next_magic(data, at + 1)


def good_record(data: bytes, at: int, base: int, release: str, crc: bool) -> LogRecord | None:
    """The record at ``data[at]``, wherever another one ends; None where it is not good."""
    framed, record = _parse(data, at, base, release, crc)
    return record if record and (not crc or _own_crc_holds(data[at : at + framed], record.properties)) else None


def _next_magic(data: bytes, start: int) -> int:
    places = [data.find(struct.pack(">I", magic), start + 4) - 4 for magic in (r.MAGIC_V1, r.MAGIC_V2)]
    return min((place for place in places if place >= start), default=len(data))


def _parse(data: bytes, at: int, base: int, release: str, crc: bool) -> tuple[int, LogRecord | None]:
    """(the record's length where it agrees with its parts, else 0; the record if it is good)."""
    size, magic = struct.unpack_from(">iI", data, at)
    if magic not in (r.MAGIC_V1, r.MAGIC_V2) or not 91 <= size <= len(data) - at:
        return 0, None
    if magic == r.MAGIC_V2 and release.startswith("4."):
        return 0, None
    raw = data[at : at + size]
    try:
        body_crc, queue, _, queue_offset, told, sysflag = struct.unpack_from(">IiiqqI", raw, 8)
        place = 72 + (20 if sysflag & r.BORN_V6 else 8) + (20 if sysflag & r.STORE_V6 else 8)
        (length,) = struct.unpack_from(">i", raw, place - 4)
        length = max(0, length)
        body = raw[place : place + length]
        place += length
        (length,) = struct.unpack_from(">h" if magic == r.MAGIC_V2 else ">b", raw, place)
        place += 2 if magic == r.MAGIC_V2 else 1
        topic = raw[place : place + length]
        if length < 0:
            return 0, None
        place += length
        length = max(0, *struct.unpack_from(">h", raw, place))
    except struct.error:
        return 0, None
    if place + 2 + length != size:
        return 0, None
    # No queue has such numbers: verify calls a record with them damage.
    if sysflag & r.TRANSACTION_MASK in (0, r.COMMIT) and (queue < 0 or not 0 <= queue_offset <= HIGHEST_QUEUE_OFFSET):
        return size, None
    if told != base + at or (crc and body and zlib.crc32(body) & 0x7FFFFFFF != body_crc):
        return size, None
    text = raw[place + 2 :]
    properties = r.parse_properties(text.decode() if text.isascii() else java.decode_utf8(text))
    if not release.startswith("4.") and not r.batch_numbers_parse(properties):
        return size, None
    return size, LogRecord(base + at, size, _name(topic), queue, queue_offset, sysflag, properties)


def _own_crc_holds(raw: bytes, properties: dict[str, str]) -> bool:
    """A record whose header was changed may still be served, by its unit: it is damage all the same."""
    return r.CRC_PROPERTY not in properties or r.property_crc_holds(raw, properties[r.CRC_PROPERTY])


def _name(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
