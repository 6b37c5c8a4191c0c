"""Look a key up in an IndexFile as the broker does (``IndexFile.selectPhyOffset`` of 4.9 to 5.5), but always come to an end.

Plain Python over a reader of bytes: a query reads a page at each step, and compiles nothing.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_LAYOUT, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.layouts import INT64_MAX, INT64_MIN, as_int, as_long

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


class Hit(NamedTuple):
    """An item with the hash and a time in range: its number, its physical offset, its store time in milliseconds."""

    item: int
    phy_offset: int
    time: int


class LookupEnd(NamedTuple):
    """Why a lookup ended, and how many items it has read."""

    end: str
    steps: int


class Hits:
    """The hits of a lookup, which walks no further than they are asked for. ``ended`` is known behind the last one."""

    def __init__(self, walk: Generator[Hit, None, LookupEnd]) -> None:
        self._walk = walk
        self.ended = LookupEnd("", 0)

    def __iter__(self) -> Iterator[Hit]:
        self.ended = yield from self._walk


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
    hits = Hits(_walk(read, header, key_hash, most, begin, end, steps_max, any_time))
    found = list(hits)
    items, phy_offsets, times = ([hit[column] for hit in found] for column in range(3))
    return Lookup(items, phy_offsets, times, hits.ended.steps, hits.ended.end)


def all_hits(read: Read, header: LookupHeader, key_hash: int) -> Hits:
    """All items with the hash, of any time, newest first."""
    return Hits(_walk(read, header, key_hash, any_time=True))


def _walk(
    read: Read,
    header: LookupHeader,
    key_hash: int,
    most: int | None = None,
    begin: int = TIME_MIN,
    end: int = TIME_MAX,
    steps_max: int | None = None,
    any_time: bool = False,
) -> Generator[Hit, None, LookupEnd]:
    size = file_size(header.slots, header.items)

    def bytes_at(at: int, length: int) -> bytes:
        return bytes(read(at, length)).ljust(length, b"\0")

    count = steps = 0
    # Every circle has a link to a later item. Where such a link is followed twice, it is part of a circle.
    forward: set[int] = set()
    (item,) = SLOT_LAYOUT.unpack(bytes_at(HEADER_SIZE + SLOT_SIZE * (key_hash % header.slots), SLOT_SIZE))
    if item == 0 or header.index_count <= 1:
        return LookupEnd(FOUND_ALL, 0)
    if item < 0 or item > header.index_count:
        return LookupEnd(BAD_SLOT, 0)
    while True:
        if most is not None and count >= most:
            return LookupEnd(ENOUGH, steps)
        if steps_max is not None and steps >= steps_max:
            return LookupEnd(TOO_LONG, steps)
        # A Java int, which wraps; the mapped file then refuses it, and the broker ends the lookup there.
        at = as_int(HEADER_SIZE + SLOT_SIZE * header.slots + ITEM_SIZE * item)
        if at < 0 or at + ITEM_SIZE > size:
            return LookupEnd(OUTSIDE, steps)
        steps += 1
        hashed, phy_offset, seconds, prev = ITEM_LAYOUT.unpack(bytes_at(at, ITEM_SIZE))
        if seconds < 0 and not any_time:
            return LookupEnd(BAD_TIME, steps)
        time = as_long(header.begin_time + 1000 * seconds)
        if hashed == key_hash and (any_time or begin <= time <= end):
            count += 1
            yield Hit(item, phy_offset, time)
        if prev == 0:
            return LookupEnd(FOUND_ALL, steps)
        if prev < 0 or prev > header.index_count or prev == item:
            return LookupEnd(BAD_LINK, steps)
        if time < begin and not any_time:
            return LookupEnd(OLDER, steps)
        if prev > item:
            if item in forward:
                return LookupEnd(CIRCULAR, steps)
            forward.add(item)
        item = prev
