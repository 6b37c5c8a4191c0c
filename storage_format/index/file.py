"""Make an IndexFile, and read one: its header, slots and items as columns."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import Finding, UnreadableError
from rocketmq_reindex.storage_format.index.layout import (
    HEADER_SIZE as HEADER_SIZE,
    ITEM_LAYOUT,
    ITEM_SIZE as ITEM_SIZE,
    SLOT_SIZE as SLOT_SIZE,
    IndexHeader as IndexHeader,
    file_size as file_size,
    first_items_fit,
    quick_sizes,
)
from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import swapped32
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.record.state import MAKER as MAKER, STAGED as STAGED
from rocketmq_reindex.storage_format.versions import VersionRules

# ------------------------------------------------------------------------------------------------------------------------- file
# Make an IndexFile (``IndexFile.putKey`` of 4.9 to 5.5): stage its items, link them, pack them. The layout: ``index.layout``.

ITEM: Final = ITEM_LAYOUT.dtype
WORDS: Final = STAGED.itemsize // 4
Words = npt.NDArray[np.uint32]
"""Items, (n, WORDS)"""


def empty_header(before: tuple[int, int] | None, rules: VersionRules) -> IndexHeader:
    """Return the header of a file without items.

    ``before``: time and physical offset of the last item of the file before, if any.
    """
    time, phy_offset = before or (0, 0)
    time, phy_offset = max(time, 0), max(phy_offset, 0)
    return IndexHeader(time, time, phy_offset, phy_offset, 0, rules.empty_index_count)


def words_of(staged: npt.NDArray[np.void]) -> Words:
    """Return staged items as compiled loops take them: the same bytes, uint32 (n, WORDS).

    The words are physical offset (low, high), time (low, high), keyHash.
    """
    return staged.view(np.uint32).reshape(-1, WORDS)


@jit
def link_items(staged: Words, first: int, slots: npt.NDArray[np.int32], prev: npt.NDArray[np.int32]) -> int:
    """Put items, numbered from ``first`` on, into ``slots``; ``prev[i]`` becomes what the slot held.

    Return how many slots are newly in use.
    """
    used = 0
    count = np.uint32(len(slots))
    for i in range(len(staged)):
        slot = staged[i, 4] % count
        before = slots[slot]
        prev[i] = before
        slots[slot] = first + i
        if before == 0:
            used += 1
    return used


@inlined
def _seconds_since(begin: int, time: int) -> int:
    """Return timeDiff as ``IndexFile.putKey`` has it: seconds as a Java long, which wraps, cut to 0..2147483647.

    It is 0 if ``begin`` is not above 0.
    """
    if begin <= 0:
        return 0
    if time < begin:
        # Below that the difference has wrapped, and is this.
        return min(((time - INT64_MIN) + (INT64_MAX - begin) + 1) // 1000, INT32_MAX) if time < begin + INT64_MIN else 0
    return min((time - begin) // 1000, INT32_MAX)


@jit
def _fill_differences(begin: int, time: npt.NDArray[np.int64], out: npt.NDArray[np.int32]) -> None:
    for i in range(len(time)):
        out[i] = _seconds_since(begin, time[i])


def time_differences(time: npt.NDArray[np.int64], begin: int) -> npt.NDArray[np.int32]:
    """Return timeDiff, int32 (n,), of items stored at ``time``, int64 (n,) in ms, in a file whose beginTimestamp is
    ``begin``."""
    out = np.empty(len(time), np.int32)
    _fill_differences(begin, np.ascontiguousarray(time), out)
    return out


@jit
def pack_items(
    staged: Words, prev: npt.NDArray[np.int32], begin_time: int, first_begin_time: int, first_of_file: bool, out: Words
) -> None:
    """Items as they stand in the file, into ``out``, uint32 (n, WORDS). ``prev`` is what ``link_items`` gave.

    ``begin_time`` is the header's beginTimestamp. The first item of a file was put before that was set: its timeDiff counts
    from ``first_begin_time``.
    """
    for i in range(len(staged)):
        time = np.int64(staged[i, 2]) | (np.int64(staged[i, 3]) << 32)
        begin = first_begin_time if first_of_file and i == 0 else begin_time
        out[i, 0] = swapped32(np.int64(staged[i, 4]))
        out[i, 1] = swapped32(np.int64(staged[i, 1]))
        out[i, 2] = swapped32(np.int64(staged[i, 0]))
        out[i, 3] = swapped32(_seconds_since(begin, time))
        out[i, 4] = swapped32(np.int64(prev[i]))


# ----------------------------------------------------------------------------------------------------------------------- reader
# Read an IndexFile: its header, slots, and items as columns; and its sizes where they are not known. The layout:
# ``index.layout``.

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

FILE_MAX: Final = INT32_MAX
"""A broker maps a file as a whole, and the size of a map is a Java int."""
_TRIED_AT_ONCE: Final = 1 << 18
"""numbers of slots that are tried together: some MiB, however large the file is"""
_CHUNK_ITEMS: Final = 1 << 20


@dataclass(frozen=True)
class Items:
    """The items ``first``, ``first + 1``, ... as columns.

    ``phy_offset`` is the physical offset, ``time_diff`` seconds since beginTimestamp, ``prev`` the number of the item before in
    its slot.
    """

    first: int
    key_hash: Int32s
    phy_offset: Int64s
    time_diff: Int32s
    prev: Int32s


@dataclass(frozen=True)
class IndexView:
    """A whole file of ``slots`` slots, with room for ``items`` items (item 0 included, which is never used)."""

    data: Bytes
    slots: int
    items: int
    header: IndexHeader
    findings: list[Finding]

    @property
    def item_start(self) -> int:
        """The byte of the file at which item 0 would stand."""
        return HEADER_SIZE + SLOT_SIZE * self.slots

    @property
    def sealed(self) -> bool:
        """Whether the broker takes the file for full (``IndexFile.isWriteFull``)."""
        return self.header.index_count >= self.items

    def heads(self, first: int = 0, count: int | None = None) -> Int32s:
        """Return what ``count`` slots from ``first`` on hold, int32: the number of each one's newest item, 0 for none."""
        stop = self.slots if count is None else min(self.slots, first + count)
        raw = self.data[HEADER_SIZE + SLOT_SIZE * first : HEADER_SIZE + SLOT_SIZE * stop]
        return np.frombuffer(raw, ">i4").astype(np.int32)

    def read(self, first: int, count: int) -> Items:
        """Return those of the items ``first`` to ``first + count`` for which the file has room."""
        first, stop = max(first, 0), max(0, min(first + count, self.items))
        raw = self.data[self.item_start + ITEM_SIZE * first : self.item_start + ITEM_SIZE * max(first, stop)]
        table = np.frombuffer(raw, ITEM)
        return Items(
            first,
            table["key_hash"].astype(np.int32),
            table["phy_offset"].astype(np.int64),
            table["time_diff"].astype(np.int32),
            table["prev"].astype(np.int32),
        )

    def last_written(self) -> int:
        """Return the number of the last item that is not all zeros, 0 for none."""
        stop = self.items
        while stop > 1:
            start = max(1, stop - _CHUNK_ITEMS)
            rows = self.data[self.item_start + ITEM_SIZE * start : self.item_start + ITEM_SIZE * stop]
            if rows.any():
                return start + (len(rows) - 1 - int(np.argmax(rows[::-1] != 0))) // ITEM_SIZE
            stop = start
        return 0

    def times(self, time_diff: Int32s) -> Int64s:
        """Return store times of items, int64 in milliseconds, as a lookup takes them.

        They are beginTimestamp + seconds, as a Java ``long``.
        """
        with np.errstate(over="ignore"):
            wrapped: Int64s = np.int64(self.header.begin_time) + time_diff.astype(np.int64) * 1000
        return wrapped


def open_index(data: Bytes | bytes | memoryview, slots: int, items: int) -> IndexView:
    """Return a view of a file of ``slots`` slots and ``items`` items.

    A file of another size is read as the broker maps it: cut, or with zeros behind it. Raises UnreadableError where there is no
    header, and for sizes that no broker can have.
    """
    raw = np.frombuffer(data, np.uint8)
    if slots < 1 or items < 1 or file_size(slots, items) > FILE_MAX:
        raise UnreadableError(f"no IndexFile has {slots} slots and {items} items")
    if len(raw) < HEADER_SIZE:
        raise UnreadableError(f"an IndexFile has a header of {HEADER_SIZE} bytes, not {len(raw)} bytes in all")
    header = IndexHeader.from_bytes(raw[:HEADER_SIZE].tobytes())
    size = file_size(slots, items)
    findings = []
    if len(raw) != size:
        findings.append(Finding("index-size", len(raw), 1))
        whole = np.zeros(size, np.uint8)
        whole[: len(raw)] = raw[:size]
        raw = whole
    return IndexView(raw, slots, items, header, findings)


def guess_sizes(data: Bytes | bytes | memoryview) -> tuple[int, int] | None:
    """Return (slots, items) of a file whose settings are not known, guessed from what it holds; None where no sizes fit."""
    raw = np.frombuffer(data, np.uint8)
    if len(raw) < HEADER_SIZE or len(raw) > FILE_MAX:
        return None
    quick = quick_sizes(lambda at, length: raw[at : at + length].tobytes(), len(raw))
    if quick is not None:
        return quick
    room = len(raw) - HEADER_SIZE
    count = IndexHeader.from_bytes(raw[:HEADER_SIZE].tobytes()).index_count
    if count < 2 or room % SLOT_SIZE:
        return None
    # The last item is the newest of its slot: try all numbers of slots that agree with that.
    step = ITEM_SIZE // SLOT_SIZE
    highest = (room - ITEM_SIZE * count) // SLOT_SIZE
    first = (room // SLOT_SIZE) % step or step
    words = np.frombuffer(raw, ">i4")
    likely: tuple[int, int] | None = None
    for low in range(first, highest + 1, step * _TRIED_AT_ONCE):
        tried = np.arange(low, min(low + step * _TRIED_AT_ONCE, highest + 1), step, dtype=np.int64)
        hashes = words[HEADER_SIZE // SLOT_SIZE + tried + step * (count - 1)].astype(np.int64)
        fits = hashes >= 0
        fits[fits] = words[HEADER_SIZE // SLOT_SIZE + hashes[fits] % tried[fits]] == count - 1
        for slots in tried[fits].tolist():
            items = (room - SLOT_SIZE * slots) // ITEM_SIZE
            if first_items_fit(lambda at, length: raw[at : at + length].tobytes(), slots, items):
                # In a table of few slots that are in use a stretch may look like the first items.
                if _links_fit(words, slots, count):
                    return slots, items
                likely = likely or (slots, items)
    # That of a damaged file.
    return likely


def _links_fit(words: npt.NDArray[np.int32], slots: int, count: int) -> bool:
    """Return whether each slot has the number of its newest item, and each other one nothing."""
    at, step = HEADER_SIZE // SLOT_SIZE, ITEM_SIZE // SLOT_SIZE
    hashes = words[at + slots + step : at + slots + step * count : step].astype(np.int64)
    newest = np.zeros(slots, np.int32)
    newest[hashes % slots] = np.arange(1, count)
    return bool((hashes >= 0).all()) and np.array_equal(newest, words[at : at + slots])
