"""Check the header of a DLedger entry, in whose body a record lies, and whether entries follow on each other.

Entries of a group have consecutive indexes, and terms that never fall. A node that truncates its log zeroes nothing: behind the
log's end may lie entries of an older term, each in its place (``DLedgerMmapFileStore.truncate``, dledger 0.2 and 0.3).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r

_AT_INDEX: Final = r.ENTRY_LAYOUT.at["index"]
_AT_TERM: Final = r.ENTRY_LAYOUT.at["term"]
_AT_POSITION: Final = r.ENTRY_LAYOUT.at["position"]
_AT_BODY_SIZE: Final = r.ENTRY_LAYOUT.at["body_size"]


class EntryPlace(NamedTuple):
    """The place of an entry in the order of its group. ``number`` is its index, -1 where that is not known.

    ``time`` is the store time of its record, in milliseconds, ``end`` the offset of the log behind it.
    """

    number: int = -1
    term: int = -1
    time: int = -1
    end: int = -1


@inlined
def position_of(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the offset of the log at which the entry at ``data[at]`` says that it lies."""
    return int(int64_at(data, at + _AT_POSITION))


@inlined
def entry_at(data: npt.NDArray[np.uint8], at: int, time: int, end: int) -> EntryPlace:
    """Return the place of the entry at ``data[at]``; ``time`` and ``end`` as in ``EntryPlace``."""
    return EntryPlace(int64_at(data, at + _AT_INDEX), int64_at(data, at + _AT_TERM), time, end)


@inlined
def follower_at(data: npt.NDArray[np.uint8], at: int, base: int) -> tuple[int, int, int]:
    """Return index, term and size of the entry whose header stands at ``data[at]``, offset ``base + at``; -1 for none."""
    kind, size = int32_at(data, at), int32_at(data, at + 4)
    if kind < r.ENTRY_NORMAL or kind > r.ENTRY_LAST_KIND or size < r.ENTRY_HEAD:
        return -1, -1, 0
    if int32_at(data, at + _AT_BODY_SIZE) != size - r.ENTRY_HEAD or position_of(data, at) != base + at:
        return -1, -1, 0
    return int(int64_at(data, at + _AT_INDEX)), int(int64_at(data, at + _AT_TERM)), size


@inlined
def check_order(before: EntryPlace, entry: EntryPlace, start: int) -> int:
    """Return GOOD for an entry that may follow on the one ``before``; STALE_ENTRY or BAD_ORDER else.

    ``start`` is the offset where it begins. Damage between the two may hide as many entries as it has room for. A term alone
    proves nothing: no CRC protects it.
    """
    if before.number < 0:
        return r.GOOD
    hidden = (start - before.end) // (r.ENTRY_HEAD + r.RECORD_MIN)
    older = entry.time < before.time
    follows = before.number < entry.number and entry.number <= before.number + 1 + hidden
    if follows and (entry.term >= before.term or not older):
        return r.GOOD
    return r.STALE_ENTRY if older else r.BAD_ORDER


@inlined
def check_entry(
    data: npt.NDArray[np.uint8], filled: int, at: int, phy_offset: int, bounds: tuple[int, int], rec: npt.NDArray[np.int64]
) -> int:
    """Return what stands at ``data[at]``, offset ``phy_offset`` of the log, as ``frame.check_record`` does.

    GOOD says nothing of the record in it, and sets ``rec[0]`` to the size of the whole entry; MORE sets it to the bytes wanted.
    ``bounds`` are the offsets where the segment ends whole, and where its file ends.
    """
    segment_end, data_end = bounds
    room = data_end - phy_offset
    if room < r.FILLER_MIN:
        return r.NO_ROOM
    rec[0] = r.FILLER_MIN
    if at + r.FILLER_MIN > filled:
        return r.MORE
    kind = int32_at(data, at)
    size = int32_at(data, at + 4)
    if size == 0:
        return r.ZERO
    if kind == r.ENTRY_BLANK:
        return r.FILLER if size == segment_end - phy_offset else r.BAD_FILLER
    if kind < r.ENTRY_NORMAL or kind > r.ENTRY_LAST_KIND:
        return r.BAD_ENTRY
    if size < r.ENTRY_HEAD or size > room:
        return r.BAD_SIZE
    rec[0] = r.ENTRY_HEAD
    if at + r.ENTRY_HEAD > filled:
        return r.MORE
    if int32_at(data, at + _AT_BODY_SIZE) != size - r.ENTRY_HEAD:
        return r.BAD_ENTRY
    rec[0] = size
    if kind == r.ENTRY_NORMAL:
        return r.GOOD if size >= r.ENTRY_HEAD + r.RECORD_MIN else r.BAD_SIZE
    return r.NO_MESSAGE if at + size <= filled else r.MORE
