"""Look a hash up in an IndexFile as the broker does (``IndexFile.selectPhyOffset`` of 4.9 to 5.5), but always come to an end.

Plain Python over a reader of bytes: a query reads a page at each step, and compiles nothing.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_LAYOUT, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.layouts import as_int

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

    def __init__(self, chain: Generator[int, None, str]) -> None:
        self._chain = chain
        self.end = ""

    def __iter__(self) -> Iterator[int]:
        self.end = yield from self._chain


def all_hits(read: Read, header: LookupHeader, key_hash: int) -> Hits:
    """Return all items with the hash (not negative), newest first, whatever their times.

    The physical offsets are those that the broker finds, in a broken file, too, up to where its own lookup would not end. Only
    at a negative timeDiff the broker's lookup ends, and this one goes on. Bytes that the file lacks read as zeros, as the
    broker maps it.
    """
    return Hits(_walk_chain(read, header, key_hash))


def _walk_chain(read: Read, header: LookupHeader, key_hash: int) -> Generator[int, None, str]:
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
            yield phy_offset
        if prev == 0:
            return FOUND_ALL
        if prev < 0 or prev > header.index_count or prev == item:
            return BAD_LINK
        if prev > item:
            if item in forward:
                return CIRCULAR
            forward.add(item)
        item = prev
