"""Layout of an IndexFile, a guess of its slots and items, and the search for a hash; and how the items of a whole log are
cut into IndexFiles (``IndexService`` of 4.9 to 5.5). No numpy here: every start reads this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.layouts import DEFAULT_ITEMS, DEFAULT_SLOTS, INT32, INT32_MAX, INT64, Field, Layout, as_int
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary

# ----------------------------------------------------------------------------------------------------------------------- header
# Layout of an IndexFile (RocketMQ ``IndexFile``, ``IndexHeader``, 4.9 to 5.5): a hash index from ``topic#key`` to physical
# offsets, big-endian.
#
#     HEADER_LAYOUT   40 bytes
#     SLOT_LAYOUT     4 bytes x maxHashSlotNum    the number of the newest item in the slot, 0 for none
#     ITEM_LAYOUT     20 bytes x maxIndexNum
#
# Items are numbered from 1. Item 0 stays zero, so a file holds maxIndexNum - 1.

HEADER_LAYOUT: Final = Layout(
    Field("beginTimestamp", "begin_time", INT64),
    Field("endTimestamp", "end_time", INT64),
    Field("beginPhyOffset", "begin_place", INT64),
    Field("endPhyOffset", "end_place", INT64),
    Field("hashSlotCount", "slot_count", INT32),
    Field("indexCount", "index_count", INT32),
)
"""``IndexHeader`` of 4.9 to 5.5; ``INDEX_HEADER_SIZE``"""
SLOT_LAYOUT: Final = Layout(Field("slotValue", "item", INT32))
"""``IndexFile.putKey`` of 4.9 to 5.5; ``hashSlotSize``"""
ITEM_LAYOUT: Final = Layout(
    Field("keyHash", "key_hash", INT32),
    Field("phyOffset", "phy_offset", INT64),
    Field("timeDiff", "time_diff", INT32),  # seconds since the header's beginTimestamp
    Field("prevItem", "prev", INT32),  # RocketMQ's slotValue: the item that the slot held before, 0 for none
)
"""``IndexFile.putKey`` of 4.9 to 5.5; ``indexSize``"""
HEADER_SIZE: Final = HEADER_LAYOUT.size
SLOT_SIZE: Final = SLOT_LAYOUT.size
ITEM_SIZE: Final = ITEM_LAYOUT.size


@dataclass(frozen=True)
class IndexHeader:
    """The fields of a header: times in milliseconds since 1970, absolute offsets, slots in use, and the number of items + 1."""

    begin_time: int
    end_time: int
    begin_place: int
    end_place: int
    slot_count: int
    index_count: int

    def to_bytes(self) -> bytes:
        """Return the header as it stands in the file: HEADER_SIZE bytes."""
        return HEADER_LAYOUT.pack(*astuple(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> IndexHeader:
        """Return the header at the start of ``data``. Raises ValueError where it is too short."""
        if len(data) < HEADER_SIZE:
            raise ValueError(f"an index header has {HEADER_SIZE} bytes, not {len(data)}")
        return cls(*HEADER_LAYOUT.unpack_from(data))


def file_size(slots: int, items: int) -> int:
    """Return the bytes of a file with ``slots`` slots and room for ``items`` items (``IndexFile``'s ``fileTotalSize``)."""
    return HEADER_SIZE + slots * SLOT_SIZE + items * ITEM_SIZE


POSSIBLE: Final = "take at least 1 slot and 2 items, and at most 2 GiB a file"
"""what to say of slots and items that are not possible"""


def are_possible(slots: int, items: int) -> bool:
    """Return whether a broker may have these settings: its file has room for an item, and ``MappedFile`` can map it."""
    return slots >= 1 and items >= 2 and file_size(slots, items) <= INT32_MAX


# ------------------------------------------------------------------------------------------------------------------------ sizes
# Guess slots and items of an IndexFile from a few reads, where its settings are not known (``file.guess_sizes`` reads it all).

_LOOKED_AT: Final = 64


def quick_sizes(read: Callable[[int, int], bytes], size: int) -> tuple[int, int] | None:
    """Return (slots, items) of a file of the default size, or of one that is full or sealed; else None.

    ``read(at, count)`` gives bytes of the file, ``size`` is its bytes.
    """
    if size == file_size(DEFAULT_SLOTS, DEFAULT_ITEMS):
        return DEFAULT_SLOTS, DEFAULT_ITEMS
    raw = read(0, HEADER_SIZE)
    if len(raw) < HEADER_SIZE:
        return None
    items = IndexHeader.from_bytes(raw).index_count
    slots, remainder = divmod(size - HEADER_SIZE - ITEM_SIZE * items, SLOT_SIZE)
    if items < 2 or slots < 1 or remainder or not first_items_fit(read, slots, items):
        return None
    return slots, items


def first_items_fit(read: Callable[[int, int], bytes], slots: int, items: int) -> bool:
    """Return whether a file may have these sizes.

    Then its first items link to those before them, and their slots hold these or newer ones.
    """
    start = HEADER_SIZE + SLOT_SIZE * slots
    raw = read(start, ITEM_SIZE * min(items, _LOOKED_AT))
    table = list(ITEM_LAYOUT.iter_unpack(raw[: len(raw) - len(raw) % ITEM_SIZE]))
    if len(table) < 2 or any(table[0]) or not any(table[1]):
        return False
    newest: dict[int, int] = {}
    for number, (key_hash, phy_offset, seconds, prev) in enumerate(table[1:], 1):
        if not (key_hash or phy_offset or seconds or prev):
            break
        slot = key_hash % slots
        if key_hash < 0 or phy_offset < 0 or newest.get(slot, 0) != prev:
            return False
        newest[slot] = number
    heads = {slot: SLOT_LAYOUT.unpack(read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE))[0] for slot in newest}
    return all(number <= heads[slot] < items for slot, number in newest.items())


# ----------------------------------------------------------------------------------------------------------------------- lookup
# Look a hash up in an IndexFile as the broker does (``IndexFile.selectPhyOffset`` of 4.9 to 5.5), but always come to an end.
#
# Plain Python over a reader of bytes: a query reads a page at each step, and compiles nothing.


Read = Callable[[int, int], bytes | memoryview]
"""(byte of the file, bytes wanted) -> those bytes, fewer at the file's end"""

# Why a lookup ended; FOUND_ALL is a sound end, the others are faults of the file.
FOUND_ALL: Final = "end of the chain"
BAD_SLOT: Final = "slot with a number that no item has"
BAD_LINK: Final = "link to no item"
CIRCULAR: Final = "circular chain"
OUTSIDE: Final = "item outside of the file"


class LookupHeader(NamedTuple):
    """What a lookup needs to know of a file: indexCount, and how many slots and items it has room for."""

    index_count: int
    slots: int
    items: int


class Hits:
    """The physical offsets of the items that a lookup finds. It reads no further than they are asked for.

    ``end`` says why the lookup ended; "" before it has.
    """

    def __init__(self, chain: Generator[tuple[int, int], None, str]) -> None:
        self._chain = chain
        self.end = ""

    def __iter__(self) -> Iterator[int]:
        return (phy_offset for _, phy_offset in self._items())

    def _items(self) -> Iterator[tuple[int, int]]:
        self.end = yield from self._chain


def all_hits(read: Read, header: LookupHeader, key_hash: int) -> Hits:
    """Return all items with the hash (not negative), newest first, whatever their times.

    The physical offsets are those that the broker finds, in a broken file, too, up to where its own lookup would not end. Only
    at a negative timeDiff the broker's lookup ends, and this one goes on. Bytes that the file lacks read as zeros, as the
    broker maps it.
    """
    return Hits(all_items(read, header, key_hash))


def all_items(read: Read, header: LookupHeader, key_hash: int) -> Generator[tuple[int, int], None, str]:
    """Yield the number and the physical offset of each item with the hash, as ``all_hits`` does; return why that ended."""
    size = file_size(header.slots, header.items)

    def bytes_at(at: int, length: int) -> bytes:
        return bytes(read(at, length)).ljust(length, b"\0")

    # Every circle has a link to a later item. Where such a link is followed twice, it is part of a circle.
    forward: set[int] = set()
    (item,) = SLOT_LAYOUT.unpack(bytes_at(HEADER_SIZE + SLOT_SIZE * (key_hash % header.slots), SLOT_SIZE))
    if item == 0 or header.index_count <= 1:
        return FOUND_ALL
    if item < 0 or item > header.index_count:
        return BAD_SLOT
    while True:
        # A Java int, which wraps; the mapped file then refuses it, and the broker ends the lookup there.
        at = as_int(HEADER_SIZE + SLOT_SIZE * header.slots + ITEM_SIZE * item)
        if at < 0 or at + ITEM_SIZE > size:
            return OUTSIDE
        hashed, phy_offset, _time_diff, prev = ITEM_LAYOUT.unpack(bytes_at(at, ITEM_SIZE))
        if hashed == key_hash:
            yield item, phy_offset
        if prev == 0:
            return FOUND_ALL
        if prev < 0 or prev > header.index_count or prev == item:
            return BAD_LINK
        if prev > item:
            if item in forward:
                return CIRCULAR
            forward.add(item)
        item = prev


WINDOWED_FILES_MAX: Final = 10_000
"""A clock that jumps must not make any number of files."""


@dataclass(frozen=True)
class BlockItems:
    """The items ``start`` to ``start + count`` of one staged block."""

    block: str
    start: int
    count: int


@dataclass(frozen=True)
class IndexFilePlan:
    """One file: its items, the item before them, and the record that makes the file.

    ``maker`` is the physical offset of that record. -1: it is to be looked up in the first stretch's block, of which
    ``maker_table`` are the items and the rows of its table of makers.
    """

    number: int
    stretches: tuple[BlockItems, ...]
    before: BlockItems | None
    maker: int
    maker_table: tuple[int, int]
    full: bool
    last: bool

    @property
    def items(self) -> int:
        """How many items the file has."""
        return sum(stretch.count for stretch in self.stretches)


@dataclass(frozen=True)
class EarlierFiles:
    """Where a plan goes on, with files that were planned when the log had more in front.

    ``skip`` items of the given ranges are in files that are gone. ``maker`` is the physical offset of the record that made the
    first file that is left, -1 if none is gone. ``window`` is the highest time window of the ranges that are no longer given.
    """

    skip: int = 0
    maker: int = -1
    window: int | None = None


_NOTHING: Final = EarlierFiles()


def _boundaries(
    ranges: Sequence[RangeSummary], starts: list[int], total: int, capacity: int, earlier: EarlierFiles
) -> list[int]:
    """Return the first item of each file, and the total.

    A file ends at its capacity, and where the highest time window so far rises.
    """
    rises: list[int] = []
    highest = earlier.window
    for start, summary in zip(starts, ranges, strict=True):
        for item, window in summary.windows:
            if highest is None or window > highest:
                highest = window
                rises.append(start + item)
    if len(rises) > WINDOWED_FILES_MAX:
        raise RefusedError(
            f"index: --index-policy would cut {len(rises)} files (at most {WINDOWED_FILES_MAX}): choose a longer window"
        )
    cuts, k = [earlier.skip], 0
    while cuts[-1] < total:
        while k < len(rises) and rises[k] <= cuts[-1]:
            k += 1
        nearest = rises[k] if k < len(rises) else total
        cuts.append(min(cuts[-1] + capacity, nearest, total))
    return cuts


def plan_index_files(ranges: Sequence[RangeSummary], index_items: int, earlier: EarlierFiles = _NOTHING) -> list[IndexFilePlan]:
    """Return the files of a log whose accepted ranges are given in order; ``index_items`` is maxIndexNum.

    Raises RefusedError where time windows would cut too many files.
    """
    capacity = index_items - 1
    starts, total = [], 0
    for summary in ranges:
        starts.append(total)
        total += summary.items
    dispatched = [s.first_dispatched for s in ranges if s.first_dispatched >= 0]
    if not dispatched:
        return []
    first_maker = earlier.maker if earlier.maker >= 0 else dispatched[0]
    cuts = _boundaries(ranges, starts, total, capacity, earlier)

    def locate(item: int) -> int:
        return bisect_right(starts, item) - 1 if item < total else len(ranges) - 1

    def stretches(low: int, high: int) -> tuple[BlockItems, ...]:
        parts, k = [], locate(low)
        while low < high:
            inside = min(high, starts[k] + ranges[k].items)
            if inside > low:
                parts.append(BlockItems(ranges[k].block, low - starts[k], inside - low))
                low = inside
            k += 1
        return tuple(parts)

    def next_dispatched(item: int) -> int:
        """Return the physical offset of the first record dispatched after that of ``item``; -1 for none.

        ``item`` is the last item of its range.
        """
        k = locate(item)
        if ranges[k].waiting >= 0:
            return ranges[k].waiting
        for summary in ranges[k + 1 :]:
            if summary.items:
                return summary.first_item_maker
            if summary.first_dispatched >= 0:
                return summary.first_dispatched
        return -1

    plans: list[IndexFilePlan] = []
    for low, high in pairwise(cuts):
        number = len(plans)
        maker, table = -1, (0, 0)
        if number == 0:
            maker = first_maker
        else:
            k = locate(low)
            if plans[-1].full and low == starts[k]:
                maker = next_dispatched(low - 1)
            elif plans[-1].full:
                table = (ranges[k].items, ranges[k].makers)
        before = stretches(low - 1, low)[0] if low else None
        full = high - low == capacity
        plans.append(IndexFilePlan(number, stretches(low, high), before, maker, table, full, high == total))
    after = next_dispatched(total - 1) if plans and plans[-1].full else -1
    if not plans or after >= 0:
        before = stretches(total - 1, total)[0] if total else None
        maker = after if plans else first_maker
        if plans:
            last = plans[-1]
            plans[-1] = IndexFilePlan(last.number, last.stretches, last.before, last.maker, last.maker_table, last.full, False)
        plans.append(IndexFilePlan(len(plans), (), before, maker, (0, 0), False, True))
    return plans
