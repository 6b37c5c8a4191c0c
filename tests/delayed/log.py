"""The records of a commitlog, read in plain Python: what a broker has stored, while it runs or after it died."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reference.records import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, parse_properties

FIXED = struct.Struct(">iIiiiqqiq8sq8siqi")
"""Up to BODYLENGTH, where both hosts have four bytes of address"""
V6_FLAGS = 0x30


@dataclass(frozen=True)
class Stored:
    """One record. ``prepared`` is PREPAREDTRANSACTIONOFFSET."""

    offset: int
    topic: str
    queue: int
    queue_offset: int
    sysflag: int
    store_time: int
    reconsumed: int
    prepared: int
    properties: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """UNIQ_KEY."""
        return self.properties.get("UNIQ_KEY", "")


Known = dict[str, tuple[bytes, list[Stored]]]
"""Names of segments, their bytes, and the records in them"""


def read_log(folder: Path, known: Known | None = None) -> list[Stored]:
    """All records, up to the first place where none stands (yet).

    Who looks often gives ``known``, which keeps what was read: a segment with the same bytes is not taken apart again.
    """
    found: list[Stored] = []
    known = {} if known is None else known
    for path in sorted(folder.iterdir()):
        if path.name.isdigit():
            data = path.read_bytes()
            if path.name not in known or known[path.name][0] != data:
                known[path.name] = data, list(of_segment(data, int(path.name)))
            found += known[path.name][1]
    return found


def of_segment(data: bytes, base: int) -> Iterator[Stored]:
    at = 0
    while at + FIXED.size < len(data):
        (size, magic, _crc, queue, _flag, queue_offset, offset, sysflag, _born, _host, stored, _host, reconsumed, prepared,
         length) = FIXED.unpack_from(data, at)  # fmt: skip
        if magic == MAGIC_BLANK or magic not in (MAGIC_V1, MAGIC_V2):
            return
        assert offset == base + at, f"{offset} stands at {base + at}"
        assert not sysflag & V6_FLAGS, f"IPv6 at {offset}"
        place = at + FIXED.size + length
        body = data[at + FIXED.size : place]
        wide = magic == MAGIC_V2
        (named,) = struct.unpack_from(">h" if wide else ">b", data, place)
        place += 2 if wide else 1
        topic = data[place : place + named].decode()
        place += named
        (length,) = struct.unpack_from(">h", data, place)
        properties = parse_properties(data[place + 2 : place + 2 + length].decode())
        yield Stored(offset, topic, queue, queue_offset, sysflag, stored, reconsumed, prepared, properties, body)
        at += size
