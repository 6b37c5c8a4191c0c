"""Where each field of each record of a log lies, under a name that tells the record's shape."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fault.case import Segments
from tests.tools.encode import BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_V6


@dataclass(frozen=True)
class Field:
    """``length`` bytes from ``at`` on in the segment ``segment``."""

    name: str
    segment: str
    at: int
    length: int


@dataclass(frozen=True)
class Laid:
    """One record: its fields by their bare names, in order."""

    segment: str
    at: int
    size: int
    version: int
    shape: str
    fields: dict[str, tuple[int, int]]


def laid_records(segments: Segments) -> list[Laid]:
    """The records of an unspoilt log."""
    found = []
    for name, data in segments.items():
        at = 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if size == 0 or magic not in (MAGIC_V1, MAGIC_V2):
                break
            found.append(_laid(name, data, at, size, 1 if magic == MAGIC_V1 else 2))
            at += size
    return found


def _laid(segment: str, data: bytes, at: int, size: int, version: int) -> Laid:
    (sysflag,) = struct.unpack_from(">i", data, at + 36)
    born, store = (20 if sysflag & BORN_V6 else 8), (20 if sysflag & STORE_V6 else 8)
    parts = [
        ("TOTALSIZE", 4), ("MAGICCODE", 4), ("BODYCRC", 4), ("QUEUEID", 4), ("FLAG", 4), ("QUEUEOFFSET", 8),
        ("PHYSICALOFFSET", 8), ("SYSFLAG", 4), ("BORNTIMESTAMP", 8), ("BORNHOST", born), ("STORETIMESTAMP", 8),
        ("STOREHOST", store), ("RECONSUMETIMES", 4), ("PREPAREDTRANSACTIONOFFSET", 8), ("BODYLENGTH", 4),
    ]  # fmt: skip
    fields: dict[str, tuple[int, int]] = {}
    here = at

    def take(name: str, length: int) -> int:
        nonlocal here
        if length:
            fields[name] = (here, length)
        here += length
        return here - length

    for name, length in parts:
        take(name, length)
    take("BODY", struct.unpack_from(">i", data, here - 4)[0])
    start = take("TOPICLENGTH", version)
    take("TOPIC", int.from_bytes(data[start:here], "big"))
    start = take("PROPERTIESLENGTH", 2)
    take("PROPERTIES", struct.unpack_from(">h", data, start)[0])
    if here != at + size:
        raise ValueError(f"{segment}: the record at {at} is spoilt already")
    hosts = f"{4 if born == 8 else 6}{4 if store == 8 else 6}"
    return Laid(segment, at, size, version, f"V{version} hosts {hosts}", fields)


def fields_of(segments: Segments) -> list[Field]:
    """Every field of every record, every property by its name, fillers and the zeros at the log's end."""
    found: list[Field] = []
    ends = dict.fromkeys(segments, 0)
    for record in laid_records(segments):
        ends[record.segment] = record.at + record.size
        for name, (at, length) in record.fields.items():
            if name != "PROPERTIES":
                found.append(Field(f"{record.shape} {name}", record.segment, at, length))
                continue
            text = segments[record.segment][at : at + length]
            found += [
                Field(f"V{record.version} property {part}", record.segment, at + start, size)
                for part, start, size in _properties(text)
            ]
    for segment, data in segments.items():
        end = ends[segment]
        if len(data) - end >= 8 and int.from_bytes(data[end + 4 : end + 8], "big") == MAGIC_BLANK:
            found += [Field("filler TOTALSIZE", segment, end, 4), Field("filler MAGICCODE", segment, end + 4, 4)]
            end += 8
            if end < len(data):
                found.append(Field("filler rest", segment, end, len(data) - end))
        elif end < len(data):
            found.append(Field("zeros at the end", segment, end, len(data) - end))
    return found


def _properties(text: bytes) -> Iterator[tuple[str, int, int]]:
    """(what, start, bytes) of names, values and separators."""
    at = 0
    for piece in text.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        known = name.decode("ascii", "replace")
        if name and separator and value:
            yield f"{known} name", at, len(name)
            yield "separator 1", at + len(name), 1
            yield f"{known} value", at + len(name) + 1, len(value)
        at += len(piece)
        if at < len(text):
            yield "separator 2", at, 1
        at += 1


def flip(segments: Segments, segment: str, at: int, bit: int) -> Segments:
    """A copy with one bit turned over."""
    spoilt = bytearray(segments[segment])
    spoilt[at] ^= 1 << bit
    return {**segments, segment: bytes(spoilt)}


def overwrite(segments: Segments, segment: str, at: int, data: bytes) -> Segments:
    """A copy with other bytes at one place."""
    spoilt = bytearray(segments[segment])
    spoilt[at : at + len(data)] = data
    return {**segments, segment: bytes(spoilt)}
