"""Passes over a segment's bytes for ``scan.stale_reading``: store times around damage, queue offsets on both sides of a gap."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import (
    QUEUE_ID,
    QUEUE_OFFSET,
    STORE_TIME,
    SYS_FLAG,
    TOPIC_END,
    TOPIC_START,
    TOTAL,
    RecordArrays,
    Stretch,
    check_record,
)
from rocketmq_reindex.storage_format.record.layout import CRC_BODY, CRC_NONE
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.name_table import NameArrays, find_name

Int64s = npt.NDArray[np.int64]

LONGEST: Final = 16 << 20
"""Bytes of the longest record behind a gap that counts, and of what may be no record in a stale tail."""
HEAD: Final = r.AT_STORE_TIMESTAMP + r.IPV6_EXTRA + 8
"""Bytes of a record up to the end of its store time."""
# What a pass keeps between calls, in the int64 array ``state``.
NEXT, TIME, HOLE, NAME_START, NAME_END, RECORDS, FIRST, COVERED, LIVE_TIME, SUMMED = range(10)
STATE_SIZE: Final = 10


class HoleArrays(NamedTuple):
    """Where holes begin and end, and the store times around them in milliseconds; all int64 by hole.

    ``before`` and ``after`` are those of the good records next to it, ``behind`` the latest up to the next hole.
    """

    starts: Int64s
    ends: Int64s
    before: Int64s
    after: Int64s
    behind: Int64s


class OffsetArrays(NamedTuple):
    """By queue, int64: the last queue offset in front of a gap and the first one behind it, -1 for none."""

    last: Int64s
    first: Int64s


@jit
def _is_head(data: npt.NDArray[np.uint8], base: int, at: int) -> bool:
    """Whether a magic code stands at ``data[at]``, and a physical offset that is its own."""
    if data[at + 4] != 0xDA or data[at + 5] != 0xA3:
        return False
    magic = int32_at(data, at + 4)
    return (magic == r.MAGIC_V1 or magic == r.MAGIC_V2) and int64_at(data, at + r.AT_PHYSICAL_OFFSET) == base + at


@jit
def _time_of(data: npt.NDArray[np.uint8], at: int) -> int:
    v6 = int32_at(data, at + r.AT_SYS_FLAG) & r.FLAG_BORN_HOST_V6
    return int(int64_at(data, at + r.AT_STORE_TIMESTAMP + (r.IPV6_EXTRA if v6 else 0)))


@jit
def note_times(stretch: Stretch, start: int, limit: int, around: HoleArrays, state: Int64s) -> int:
    """Note the times around each hole.

    Good records are walked up to the first hole; behind it every byte is looked at. Returns where to go on, or -1 where a good
    record should stand in front of the first hole, and does not.
    """
    data, base, holes, ends = stretch.data, stretch.base, around.starts, around.ends
    before, after, behind = around.before, around.after, around.behind
    at = start
    while at < limit:
        phy_offset = base + at
        hole = state[HOLE]
        if hole < len(holes) and phy_offset >= holes[hole]:
            before[hole] = state[TIME]
            state[NEXT] = ends[hole]
            hole += 1
            state[HOLE] = hole
        if _is_head(data, base, at):
            time = _time_of(data, at)
            if phy_offset == state[NEXT]:
                total = np.int64(int32_at(data, at))
                state[TIME] = time
                state[NEXT] = phy_offset + total
                if hole > 0 and phy_offset == ends[hole - 1]:
                    after[hole - 1] = time
                if hole == 0:
                    if total <= 0:
                        return -1
                    at += total
                    continue
            if hole > 0 and phy_offset != holes[hole - 1]:
                behind[hole - 1] = max(behind[hole - 1], time)
        elif hole == 0:
            return -1
        at += 1
    return at


@jit
def note_queues(
    stretch: Stretch,
    start: int,
    limit: int,
    end: int,
    names: NameArrays,
    queues: w.QueueArrays,
    offsets: OffsetArrays,
    queue_state: Int64s,
    state: Int64s,
    record: RecordArrays,
) -> tuple[int, int]:
    """Walk good records in front of ``end``, and search for sound ones behind it: note the queue offsets of both.

    What stands at ``end`` itself is damaged, and is passed over: perhaps only the CRC of the whole record says so. Returns a
    code of ``record.layout`` and where, as ``walk`` does.
    """
    data, base, rec = stretch.data, stretch.base, record.rec
    last, first = offsets.last, offsets.first
    at = start
    while at < limit:
        ahead = base + at < end
        if not ahead and (base + at == end or not _is_head(data, base, at)):
            at += 1
            continue
        code = check_record(stretch, at, CRC_NONE if ahead else CRC_BODY, record)
        if code == r.MORE and (ahead or rec[TOTAL] <= LONGEST):
            return r.MORE, at
        if code != r.GOOD:
            if code == r.BAD_BODY_CRC:
                # A body full of heads of long records would be summed up once for each of them.
                state[SUMMED] += rec[TOTAL]
            if ahead or state[SUMMED] > 8 * LONGEST + stretch.data_end - end:
                return r.NOT_FOUND, at
            at += 1
            continue
        flags = rec[SYS_FLAG]
        kind = flags & r.FLAG_TRANSACTION_MASK
        has_unit = kind == r.TRANSACTION_NONE or kind == r.TRANSACTION_COMMIT
        # The offsets of a batch queue do not rise by one. What is not older proves nothing.
        if has_unit and not flags & r.FLAG_INNER_BATCH and (ahead or rec[STORE_TIME] < state[LIVE_TIME]):
            name = find_name(names, data, rec[TOPIC_START], rec[TOPIC_END])
            if name < 0:
                state[NAME_START] = rec[TOPIC_START]
                state[NAME_END] = rec[TOPIC_END]
                return r.NEW_NAME, at
            if 2 * (queue_state[w.QUEUES] + 1) > len(queues.slots):
                return r.QUEUES_FULL, at
            known = queue_state[w.QUEUES]
            queue = w.enter_queue(queues, queue_state, np.int64(names.canonical[name]), rec[QUEUE_ID])
            if queue == known:
                last[queue] = -1
                first[queue] = -1
            if ahead:
                last[queue] = rec[QUEUE_OFFSET]
            elif first[queue] < 0:
                first[queue] = rec[QUEUE_OFFSET]
        if not ahead:
            if state[FIRST] < 0:
                state[FIRST] = base + at
            state[RECORDS] += 1
            state[COVERED] += rec[TOTAL]
        at += rec[TOTAL]
    return r.LIMIT, at
