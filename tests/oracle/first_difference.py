"""The first field in which two builds of one log differ, by its name."""

from __future__ import annotations

import struct
from dataclasses import dataclass

Files = dict[str, bytes]
"""{relative path: bytes} of consumequeue/, index/ and checkpoint"""

UNIT = struct.Struct(">qiq")
UNIT_FIELDS = ("commitLogOffset", "size", "tagsCode")
HEADER = struct.Struct(">qqqqii")
HEADER_FIELDS = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")
ITEM = struct.Struct(">iqii")
ITEM_FIELDS = ("keyHash", "phyOffset", "timeDiff", "prevItem")
CHECKPOINT = struct.Struct(">qqqqqq")
CHECKPOINT_FIELDS = (
    "physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset",
    "logicsPhysicalOffset",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One field, or one whole file. ``expected`` and ``got`` are None for a file that is not there."""

    file: str
    field: str
    expected: int | str | None
    got: int | str | None

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: expected {self.expected}, got {self.got}"


def first_difference(expected: Files, got: Files, hash_slots: int) -> Difference | None:
    """None if they are equal. IndexFiles are compared in order: their names are of the builder's choice."""
    for name in sorted(path for path in expected.keys() | got.keys() if path.startswith("consumequeue/")):
        found = _file(name, expected.get(name), got.get(name), hash_slots)
        if found:
            return found
    theirs, ours = (sorted(path for path in files if path.startswith("index/")) for files in (expected, got))
    for number in range(max(len(theirs), len(ours))):
        name = f"index file {number + 1} of {len(theirs)}"
        one = expected[theirs[number]] if number < len(theirs) else None
        other = got[ours[number]] if number < len(ours) else None
        found = _file(name, one, other, hash_slots)
        if found:
            return found
    return _file("checkpoint", expected.get("checkpoint"), got.get("checkpoint"), hash_slots)


def _file(name: str, expected: bytes | None, got: bytes | None, hash_slots: int) -> Difference | None:
    if expected == got:
        return None
    if expected is None or got is None:
        words = ["nothing" if content is None else f"{len(content)} bytes" for content in (expected, got)]
        return Difference(name, "the file", *words)
    if len(expected) != len(got):
        return Difference(name, "length", len(expected), len(got))
    at = next(k for k, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
    if name.startswith("consumequeue/"):
        number = at // UNIT.size
        first = int(name.rsplit("/", 1)[1]) // UNIT.size
        what = f"unit {number} (queue offset {first + number})"
        return _field(name, what, UNIT, UNIT_FIELDS, number * UNIT.size, expected, got)
    if name.startswith("index file"):
        return _index_field(name, at, expected, got, hash_slots)
    if at < CHECKPOINT.size:
        return _field(name, "", CHECKPOINT, CHECKPOINT_FIELDS, 0, expected, got)
    return Difference(name, f"byte {at}", expected[at], got[at])


def _index_field(name: str, at: int, expected: bytes, got: bytes, hash_slots: int) -> Difference:
    if at < HEADER.size:
        return _field(name, "header", HEADER, HEADER_FIELDS, 0, expected, got)
    items = HEADER.size + 4 * hash_slots
    if at < items:
        slot = (at - HEADER.size) // 4
        values = [int.from_bytes(file[HEADER.size + 4 * slot :][:4], "big", signed=True) for file in (expected, got)]
        return Difference(name, f"slot {slot}", *values)
    number = (at - items) // ITEM.size
    return _field(name, f"item {number}", ITEM, ITEM_FIELDS, items + number * ITEM.size, expected, got)


def _field(
    name: str, what: str, layout: struct.Struct, fields: tuple[str, ...], at: int, expected: bytes, got: bytes
) -> Difference:  # fmt: skip
    pairs = zip(fields, layout.unpack_from(expected, at), layout.unpack_from(got, at), strict=True)
    field, theirs, ours = next(pair for pair in pairs if pair[1] != pair[2])
    return Difference(name, f"{what} {field}".strip(), theirs, ours)
