"""Make an IndexFile (``IndexFile.putKey`` of 4.9 to 5.5): stage its items, link them, pack them. The layout:
``index.header``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.index.header import HEADER_SIZE as HEADER_SIZE
from rocketmq_reindex.storage_format.index.header import ITEM_LAYOUT
from rocketmq_reindex.storage_format.index.header import ITEM_SIZE as ITEM_SIZE
from rocketmq_reindex.storage_format.index.header import SLOT_SIZE as SLOT_SIZE
from rocketmq_reindex.storage_format.index.header import IndexHeader as IndexHeader
from rocketmq_reindex.storage_format.index.header import file_size as file_size
from rocketmq_reindex.storage_format.integers import INT32_MAX, INT64_MIN
from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.words import swapped32
from rocketmq_reindex.storage_format.versions import VersionRules
from rocketmq_reindex.storage_format.walk.index_items import MAKER as MAKER
from rocketmq_reindex.storage_format.walk.index_items import STAGED as STAGED

ITEM: Final = ITEM_LAYOUT.dtype
WORDS: Final = STAGED.itemsize // 4
Words = npt.NDArray[np.uint32]
"""Items, (n, WORDS)"""


def empty_header(before: tuple[int, int] | None, rules: VersionRules) -> IndexHeader:
    """The header of a file without items. ``before``: time and physical offset of the last item of the file before, if any."""
    time, phy_offset = before or (0, 0)
    time, phy_offset = max(time, 0), max(phy_offset, 0)
    return IndexHeader(time, time, phy_offset, phy_offset, 0, rules.empty_index_count)


def words_of(staged: npt.NDArray[np.void]) -> Words:
    """Staged items as compiled loops take them: the same bytes, uint32 (n, WORDS).

    The words are physical offset (low, high), time (low, high), keyHash.
    """
    return staged.view(np.uint32).reshape(-1, WORDS)


@jit
def link_items(staged: Words, first: int, slots: npt.NDArray[np.int32], prev: npt.NDArray[np.int32]) -> int:
    """Put items, numbered from ``first`` on, into ``slots``; ``prev[i]`` becomes what the slot held. Returns slots newly in
    use."""
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
    """timeDiff as ``IndexFile.putKey`` has it: seconds as a Java long, which wraps, cut to 0..2147483647; 0 if ``begin`` is not
    above 0."""
    if begin <= 0:
        return 0
    if time < begin:
        return INT32_MAX if time < begin + INT64_MIN else 0
    return min((time - begin) // 1000, INT32_MAX)


@jit
def _fill_differences(begin: int, time: npt.NDArray[np.int64], out: npt.NDArray[np.int32]) -> None:
    for i in range(len(time)):
        out[i] = _seconds_since(begin, time[i])


def time_differences(time: npt.NDArray[np.int64], begin: int) -> npt.NDArray[np.int32]:
    """timeDiff, int32 (n,), of items stored at ``time``, int64 (n,) in ms, in a file whose beginTimestamp is ``begin``."""
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
