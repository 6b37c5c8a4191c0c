"""IndexFiles made of staged items, chunk by chunk, against the broker's putKey done one by one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.kernels.java_text import index_hash, java_hash
from rocketmq_reindex.storage_format.versions import RULES
from tests.reference.index_file import IndexFile
from tests.tools.strategies import embedded

Item = tuple[str, int, int]
"""text, physical offset, store time"""

TIMES = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.sampled_from([0, -1, 1, 999, 1000, 1_699_999_999_999, 4_000_000_000_000_000]),
    st.integers(-(2**63), 2**63 - 1),
)
ITEMS = st.lists(
    st.tuples(st.sampled_from(["Aa", "BB", "AaAa", "BBBB", "k", "k1", "polygenelubricants", ""]), TIMES), max_size=30
)


def hashed(text: str) -> int:
    data, start, end = embedded(text.encode())
    return index_hash(java_hash(data, start, end, 0))


def assemble(items: list[Item], before: tuple[int, int] | None, slot_count: int, room: int, chunk: int) -> bytes:
    """The file as a writer puts it together: two passes over the items, ``chunk`` at a time."""
    staged = np.array([(place, time, hashed(text)) for text, place, time in items], dtype=ix.STAGED)
    slots, used = np.zeros(slot_count, np.int32), 0
    prev = np.empty(len(staged), np.int32)
    packed = bytes(ix.ITEM_SIZE)
    parts = [(low, ix.words_of(staged[low : low + chunk])) for low in range(0, len(staged), chunk)]
    for low, part in parts:
        used += ix.link_items(part, low + 1, slots, prev[low:])
    for low, part in parts:
        out = np.empty_like(part)
        inherited = max(before[0], 0) if before else 0
        ix.pack_items(part, prev[low:], int(staged[0]["time"]), inherited, low == 0, out)
        packed += out.tobytes()
    if len(staged):
        first, last = staged[0], staged[-1]
        header = ix.IndexHeader(first["time"], last["time"], first["phy_offset"], last["phy_offset"], used, len(staged) + 1)
    else:
        header = ix.empty_header(before, RULES["5.3"])
    body = header.to_bytes() + slots.astype(">i4").tobytes() + packed
    return body.ljust(ix.file_size(slot_count, room), b"\0")


def broker(items: list[Item], before: tuple[int, int] | None, slot_count: int, room: int) -> IndexFile:
    file = IndexFile(0, slot_count, room)
    if before and before[0] > 0:
        file.begin_timestamp = file.end_timestamp = before[0]
    if before and before[1] > 0:
        file.begin_offset = file.end_offset = before[1]
    for text, place, time in items:
        file.put(text, place, time)
    return file


@given(ITEMS, st.one_of(st.none(), st.tuples(TIMES, st.integers(0, 2**40))), st.integers(1, 9), st.integers(1, 31))
@example([("k", -5), ("k", 2_000)], (1_000, 7), 3, 1)
@example([("k", 0), ("k", 2_000)], None, 3, 31)
@example(
    [("k", 2**63 - 1), ("k", -(2**63)), ("k", -(2**63) + 1_999), ("k", -(2**63) + 2**31 * 1000), ("k", -2), ("k", -1)],
    None,
    3,
    31,
)
@example([], (0, 0), 1, 1)
def test_byte_for_byte(items: list[tuple[str, int]], before: tuple[int, int] | None, slots: int, chunk: int) -> None:
    placed = [(text, 100 * n, time) for n, (text, time) in enumerate(items)]
    assert assemble(placed, before, slots, 40, chunk) == broker(placed, before, slots, 40).to_bytes("5.3")


@given(st.one_of(st.none(), st.tuples(st.integers(-9, 9), st.integers(-9, 9))), st.sampled_from(["5.3", "4.9"]))
def test_a_file_without_items(before: tuple[int, int] | None, version: str) -> None:
    header = ix.empty_header(before, RULES[version]).to_bytes()
    assert header == broker([], before, 1, 2).to_bytes(version)[: ix.HEADER_SIZE]


def test_differences_that_wrap() -> None:
    """What ``IndexFile.putKey`` of RocketMQ 4.9.8, 5.3.3 and 5.5.1 wrote, with the greatest beginTimestamp."""
    low = -(2**63)
    times = np.array([low, low + 1999, low + 2**31 * 1000, -2, -1, -9223369889371128810])
    assert ix.time_differences(times, 2**63 - 1).tolist() == [0, 2, 2147483647, 2147483647, 0, 2147483646]


def test_a_chain_through_one_slot() -> None:
    slots, prev = np.zeros(1, np.int32), np.zeros(4, np.int32)
    hashes = np.zeros((4, ix.WORDS), np.uint32)
    hashes[:, 4] = [7, 2**31 - 1, 7, 0]
    assert ix.link_items(hashes, 1, slots, prev) == 1
    assert (prev.tolist(), slots.tolist()) == ([0, 1, 2, 3], [4])
    assert ix.link_items(hashes[:2], 5, slots, prev) == 0
    assert (prev.tolist()[:2], slots.tolist()) == ([4, 5], [6])


def test_header_round_trip() -> None:
    header = ix.IndexHeader(-1, 2**63 - 1, 3, -(2**63), 5, 6)
    assert ix.IndexHeader.from_bytes(header.to_bytes() + b"slots") == header
    assert header.to_bytes() == struct.pack(">qqqqii", -1, 2**63 - 1, 3, -(2**63), 5, 6)
    with pytest.raises(ValueError, match="not 39"):
        ix.IndexHeader.from_bytes(header.to_bytes()[:39])


def test_the_brokers_default_size() -> None:
    assert ix.file_size(5_000_000, 20_000_000) == 420_000_040
