"""What an IndexFile is made of: items as they are staged, linked and written. The layout: ``index_header``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage_format.index_header import HEADER_SIZE as HEADER_SIZE
from storage_format.index_header import ITEM_SIZE as ITEM_SIZE
from storage_format.index_header import SLOT_SIZE as SLOT_SIZE
from storage_format.index_header import IndexHeader as IndexHeader
from storage_format.index_header import file_size as file_size
from storage_format.jit import jit

ITEM: Final = np.dtype([("key_hash", ">i4"), ("place", ">i8"), ("time_diff", ">i4"), ("prev", ">i4")])
STAGED: Final = np.dtype([("place", "<i8"), ("time", "<i8"), ("key_hash", "<i4")])
"""An item as a scan stages it, before its file is known."""
MAKER: Final = np.dtype([("item", "<i8"), ("place", "<i8")])
"""A staged block's table: before this item a record without items was dispatched at that place."""


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
