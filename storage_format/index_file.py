"""IndexFiles (RocketMQ ``IndexFile``, ``IndexHeader``): a hash index from ``topic#key`` to physical offsets, big-endian.

    header 40:  beginTimestamp 8, endTimestamp 8, beginPhyOffset 8, endPhyOffset 8, hashSlotCount 4, indexCount 4
    slots:      maxHashSlotNum x 4      the number of the newest item in the slot, 0 for none
    items:      maxIndexNum x 20        keyHash 4, phyOffset 8, timeDiff 4 (seconds), prevItem 4

Items are numbered from 1; the place of item 0 stays zero, so a file holds maxIndexNum - 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage_format.jit import jit

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ITEM: Final = np.dtype([("key_hash", ">i4"), ("place", ">i8"), ("time_diff", ">i4"), ("prev", ">i4")])
ITEM_SIZE: Final = ITEM.itemsize
STAGED: Final = np.dtype([("place", "<i8"), ("time", "<i8"), ("key_hash", "<i4")])
"""An item as a scan stages it, before its file is known."""
MAKER: Final = np.dtype([("item", "<i8"), ("place", "<i8")])
"""A staged block's table: before this item a record without items was dispatched at that place."""
_HEADER: Final = struct.Struct(">qqqqii")


@dataclass(frozen=True)
class IndexHeader:
    """Times in milliseconds since 1970; offsets absolute; ``index_count`` is items + 1."""

    begin_time: int
    end_time: int
    begin_place: int
    end_place: int
    slot_count: int
    index_count: int

    def to_bytes(self) -> bytes:
        return _HEADER.pack(self.begin_time, self.end_time, self.begin_place, self.end_place, self.slot_count, self.index_count)

    @classmethod
    def from_bytes(cls, data: bytes) -> IndexHeader:
        """Raises ValueError when ``data`` is too short to be one."""
        if len(data) < HEADER_SIZE:
            raise ValueError(f"an index header has {HEADER_SIZE} bytes, not {len(data)}")
        return cls(*_HEADER.unpack_from(data))


def file_size(slots: int, items: int) -> int:
    """Bytes of an IndexFile with so many slots and places for items."""
    return HEADER_SIZE + slots * SLOT_SIZE + items * ITEM_SIZE


def empty_header(before: tuple[int, int] | None, broker_version: str) -> IndexHeader:
    """Header of a file without items; ``before`` is (time, place) of the last item of the file before."""
    time, place = before or (0, 0)
    time, place = max(time, 0), max(place, 0)
    # 4.9 leaves the in-memory count unwritten until the first item.
    return IndexHeader(time, time, place, place, 0, 0 if broker_version == "4.9" else 1)


@jit
def link_items(key_hash: npt.NDArray[np.int32], first: int, slots: npt.NDArray[np.int32], prev: npt.NDArray[np.int32]) -> int:
    """Put items numbered from ``first`` into ``slots``; ``prev[i]`` is what the slot held. Returns slots newly in use."""
    used = 0
    count = len(slots)
    for i in range(len(key_hash)):
        slot = key_hash[i] % count
        before = slots[slot]
        prev[i] = before
        slots[slot] = first + i
        if before == 0:
            used += 1
    return used


def time_differences(
    time: npt.NDArray[np.int64], first_of_file: bool, begin_time: int, inherited: int
) -> npt.NDArray[np.int32]:
    """Seconds since the header's beginTimestamp, cut to 0..2147483647, 0 while that is not above 0.

    The first item of a file meets the time inherited from the file before (``IndexFile.putKey``).
    """

    def since(begin: int, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if begin <= 0:
            return np.zeros(len(values), np.int64)
        with np.errstate(over="ignore"):
            difference = values - np.int64(begin)
        seconds: npt.NDArray[np.int64] = np.clip(np.where(difference < 0, 0, difference) // 1000, 0, 0x7FFFFFFF)
        return seconds

    result = since(begin_time, time)
    if first_of_file and len(time):
        result[:1] = since(inherited, time[:1])
    return result.astype(np.int32)


def pack_items(
    staged: npt.NDArray[np.void], prev: npt.NDArray[np.int32], differences: npt.NDArray[np.int32]
) -> npt.NDArray[np.void]:
    """Items as they stand in the file."""
    out = np.empty(len(staged), dtype=ITEM)
    out["key_hash"] = staged["key_hash"]
    out["place"] = staged["place"]
    out["time_diff"] = differences
    out["prev"] = prev
    return out
