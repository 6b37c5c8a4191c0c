"""Look a key up in an IndexFile as the broker does (``IndexFile.selectPhyOffset`` of 4.9 and 5.3), but always come to an end.

Plain Python over a reader of bytes: a query reads a page at each step, and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_LAYOUT, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN, as_int, as_long

Read = Callable[[int, int], bytes | memoryview]
"""(byte of the file, bytes wanted) -> those bytes, fewer at the file's end"""

TIME_MIN: Final = INT64_MIN
TIME_MAX: Final = INT64_MAX

# Why a lookup ended; FOUND_ALL, ENOUGH and OLDER are sound ends, the others are faults of the file.
FOUND_ALL: Final = "end of the chain"
ENOUGH: Final = "as many as wanted"
OLDER: Final = "items older than wanted"
BAD_SLOT: Final = "slot with a number that no item has"
BAD_LINK: Final = "link to no item"
BAD_TIME: Final = "item with a negative timeDiff"
CIRCULAR: Final = "circular chain"
OUTSIDE: Final = "item outside of the file"
TOO_LONG: Final = "more steps than allowed"


class Lookup(NamedTuple):
    """Items with the hash and a time in range, newest first: their numbers, physical offsets, and store times in milliseconds.

    ``end`` says why the lookup ended.
    """

    items: list[int]
    phy_offsets: list[int]
    times: list[int]
    steps: int
    """items read"""
    end: str


class LookupHeader(NamedTuple):
    """What a lookup needs to know of a file: beginTimestamp, indexCount, and how many slots and items it has room for."""

    begin_time: int
    index_count: int
    slots: int
    items: int


def lookup(
    read: Read,
    header: LookupHeader,
    key_hash: int,
    most: int | None = None,
    begin: int = TIME_MIN,
    end: int = TIME_MAX,
    steps_max: int | None = None,
    any_time: bool = False,
) -> Lookup:
    """Walk the chain of ``key_hash`` (not negative), newest item first.

    ``begin`` and ``end`` are store times in milliseconds, both included; ``most`` items are found, ``steps_max`` items read, at
    most. The physical offsets are those that the broker finds, in a broken file, too, up to where its own lookup would not end.
    Bytes that the file lacks read as zeros, as the broker maps it. ``any_time``: times decide nothing, not even a negative
    timeDiff, at which the broker's lookup ends.
    """
    size = file_size(header.slots, header.items)

    def bytes_at(at: int, length: int) -> bytes:
        return bytes(read(at, length)).ljust(length, b"\0")

    items: list[int] = []
    phy_offsets: list[int] = []
    times: list[int] = []
    steps = 0
    # Every circle has a link to a later item. Where such a link is followed twice, it is part of a circle.
    forward: set[int] = set()
    (item,) = SLOT_LAYOUT.unpack(bytes_at(HEADER_SIZE + SLOT_SIZE * (key_hash % header.slots), SLOT_SIZE))
    if item == 0 or header.index_count <= 1:
        return Lookup(items, phy_offsets, times, 0, FOUND_ALL)
    if item < 0 or item > header.index_count:
        return Lookup(items, phy_offsets, times, 0, BAD_SLOT)
    while True:
        if most is not None and len(phy_offsets) >= most:
            return Lookup(items, phy_offsets, times, steps, ENOUGH)
        if steps_max is not None and steps >= steps_max:
            return Lookup(items, phy_offsets, times, steps, TOO_LONG)
        # A Java int, which wraps; the mapped file then refuses it, and the broker ends the lookup there.
        at = as_int(HEADER_SIZE + SLOT_SIZE * header.slots + ITEM_SIZE * item)
        if at < 0 or at + ITEM_SIZE > size:
            return Lookup(items, phy_offsets, times, steps, OUTSIDE)
        steps += 1
        hashed, phy_offset, seconds, prev = ITEM_LAYOUT.unpack(bytes_at(at, ITEM_SIZE))
        if seconds < 0 and not any_time:
            return Lookup(items, phy_offsets, times, steps, BAD_TIME)
        time = as_long(header.begin_time + 1000 * seconds)
        if hashed == key_hash and (any_time or begin <= time <= end):
            items.append(item)
            phy_offsets.append(phy_offset)
            times.append(time)
        if prev == 0:
            return Lookup(items, phy_offsets, times, steps, FOUND_ALL)
        if prev < 0 or prev > header.index_count or prev == item:
            return Lookup(items, phy_offsets, times, steps, BAD_LINK)
        if time < begin and not any_time:
            return Lookup(items, phy_offsets, times, steps, OLDER)
        if prev > item:
            if item in forward:
                return Lookup(items, phy_offsets, times, steps, CIRCULAR)
            forward.add(item)
        item = prev
