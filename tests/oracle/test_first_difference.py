"""The first different field is told by its name."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.golden.stores import GoldenStore
from tests.oracle.first_difference import Difference, Files, first_difference

Stores = Callable[[str], GoldenStore]
SLOTS = 3
QUEUE = "consumequeue/T/1/00000000000000000040"
INDEX = "index/20240101000000000"


def files() -> Files:
    """A queue from unit 2 on, an index file of two items, a checkpoint."""
    queue = b"".join(struct.pack(">qiq", 100 * k, 90, k) for k in range(3))
    header = struct.pack(">qqqqii", 1000, 2000, 0, 100, 2, 3)
    items = bytes(20) + struct.pack(">iqii", 7, 0, 0, 0) + struct.pack(">iqii", 8, 100, 1, 1)
    index = header + struct.pack(">iii", 0, 1, 2) + items
    checkpoint = struct.pack(">qqqqq", 0, 2000, 0, 0, 200) + bytes(4096 - 40)
    return {QUEUE: queue, INDEX: index, "checkpoint": checkpoint}


def spoilt(name: str, at: int, value: bytes) -> Files:
    found = files()
    content = found[name]
    found[name] = content[:at] + value + content[at + len(value) :]
    return found


def test_equal_builds_have_none() -> None:
    other = files()
    other["index/00000000000000000"] = other.pop(INDEX)
    assert first_difference(files(), files(), SLOTS) is None
    assert first_difference(files(), other, SLOTS) is None


@pytest.mark.parametrize(
    ("name", "at", "value", "file", "field", "expected", "got"),
    [
        (QUEUE, 27, b"\xff", QUEUE, "unit 1 (queue offset 3) commitLogOffset", 100, 255),
        (QUEUE, 8, b"\xff", QUEUE, "unit 0 (queue offset 2) size", 90, -16777126),
        (QUEUE, 52, b"\x80", QUEUE, "unit 2 (queue offset 4) tagsCode", 2, -(2**63) + 2),
        (INDEX, 7, b"\x00", "index file 1 of 1", "header beginTimestamp", 1000, 768),
        (INDEX, 32, b"\x00\x00\x00\x09", "index file 1 of 1", "header hashSlotCount", 2, 9),
        (INDEX, 36, b"\x00\x00\x00\x09", "index file 1 of 1", "header indexCount", 3, 9),
        (INDEX, 40 + 11, b"\x01", "index file 1 of 1", "slot 2", 2, 1),
        (INDEX, 52, b"\x00\x00\x00\x01", "index file 1 of 1", "item 0 keyHash", 0, 1),
        (INDEX, 92 + 11, b"\x65", "index file 1 of 1", "item 2 phyOffset", 100, 101),
        (INDEX, 92 + 15, b"\x02", "index file 1 of 1", "item 2 timeDiff", 1, 2),
        (INDEX, 92 + 19, b"\x02", "index file 1 of 1", "item 2 prevItem", 1, 2),
        ("checkpoint", 15, b"\x00", "checkpoint", "logicsMsgTimestamp", 2000, 1792),
        ("checkpoint", 39, b"\x01", "checkpoint", "confirmPhyOffset", 200, 1),
        ("checkpoint", 47, b"\x01", "checkpoint", "logicsPhysicalOffset", 0, 1),
        ("checkpoint", 48, b"\x01", "checkpoint", "byte 48", 0, 1),
    ],
)  # fmt: skip
def test_a_field_by_its_name(name: str, at: int, value: bytes, file: str, field: str, expected: int, got: int) -> None:
    found = first_difference(files(), spoilt(name, at, value), SLOTS)
    assert found == Difference(file, field, expected, got)
    assert str(found) == f"{file}: {field}: expected {expected}, got {got}"


def test_files_missing_too_many_and_of_another_length() -> None:
    less = files()
    size = len(less.pop(QUEUE))
    assert first_difference(files(), less, SLOTS) == Difference(QUEUE, "the file", f"{size} bytes", "nothing")
    assert first_difference(less, files(), SLOTS) == Difference(QUEUE, "the file", "nothing", f"{size} bytes")
    more = files()
    more["index/20240101000000001"] = bytes(112)
    found = first_difference(files(), more, SLOTS)
    assert found == Difference("index file 2 of 1", "the file", "nothing", "112 bytes")
    longer = files()
    longer["checkpoint"] += b"\0"
    assert first_difference(files(), longer, SLOTS) == Difference("checkpoint", "length", 4096, 4097)


def test_of_a_real_store(golden_store: Stores) -> None:
    """Whatever byte of a file is another, the field told is around it."""
    store = golden_store("v2-ipv6-batch")
    slots = store.sizes()["hash_slots"]
    truth = store.rebuilt()
    assert first_difference(truth, truth, slots) is None
    for name in (min(truth), max(truth), "checkpoint"):
        for at in range(0, len(truth[name]), 97):
            other = dict(truth)
            other[name] = truth[name][:at] + bytes([truth[name][at] ^ 0x40]) + truth[name][at + 1 :]
            found = first_difference(truth, other, slots)
            assert found is not None
            assert found.expected != found.got
