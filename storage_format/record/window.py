"""The part of the log that a scan has in memory, and passes over a segment's bytes that look for a stale tail."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int16_at, int32_at, int64_at
from rocketmq_reindex.storage_format.record import layout as r, state as w
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
    addresses_extra,
    check_record,
)
from rocketmq_reindex.storage_format.record.layout import CRC_BODY, CRC_NONE
from rocketmq_reindex.storage_format.record.name_table import NameArrays, find_name

# ----------------------------------------------------------------------------------------------------------------------- window

Bytes = npt.NDArray[np.uint8]
ReadInto = Callable[[int, Bytes], None]
"""Fill the array with the log's bytes from an absolute offset on; raises if they are not there."""
View = Callable[[int, int], Bytes | None]
"""So many mapped bytes of the log from an absolute offset on, without a copy. None where they are not mapped."""
Seen = Callable[[int, Bytes], None]
"""Takes each stretch of bytes that has come into memory, with its absolute offset: in their order, some perhaps twice."""


def see_nothing(_at: int, _data: Bytes) -> None:
    """Takes bytes that nobody wants."""


class Window:
    """``data[:filled]`` is the log from absolute offset ``base`` on. Copies go through one buffer of ``chunk`` bytes."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._buffer = np.empty(0, np.uint8)
        self.data, self.base, self.filled, self.lead = self._buffer, 0, 0, 0

    def open(
        self, at: int, segment_end: int, data_end: int, read: ReadInto, view: View | None, seen: Seen = see_nothing,
        lead: int = 0,
    ) -> None:  # fmt: skip
        """Begin at absolute offset ``at`` of a segment; ``segment_end``, ``data_end`` and ``lead`` as in ``Stretch``."""
        self._segment_end, self._data_end, self._read, self._view, self._seen = segment_end, data_end, read, view, seen
        self.lead = lead
        self.data, self.base, self.filled = self._buffer, at, 0

    def close(self) -> None:
        """Drop views, and a buffer that a long record has made longer."""
        if len(self._buffer) > self._chunk:
            self._buffer = np.empty(0, np.uint8)
        self.data, self.filled = self._buffer, 0

    @property
    def stretch(self) -> Stretch:
        """What is in memory, as the record loops take it."""
        return Stretch(self.data, self.filled, self.base, self._segment_end, self._data_end, self.lead)

    @property
    def capacity(self) -> int:
        """The bytes that fit without a longer buffer."""
        return max(self._chunk, len(self.data))

    def adds_up(self, at: int, total: int) -> bool:
        """Return whether the lengths of a record of ``total`` bytes at ``data[at]`` add up, before the buffer grows for it.

        Those at its far end are read for that.
        """
        if total <= self.capacity:
            return True
        data, end = self.data, self.base + at + total
        at += self.lead
        extra = addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
        body = max(0, int32_at(data, at + r.AT_BODY_LENGTH + extra))
        v1 = int32_at(data, at + r.AT_MAGIC) == r.MAGIC_V1
        topic_at = self.base + at + r.HEADER_SIZE + extra + body
        length = np.zeros(2, np.uint8)
        self._read(topic_at, length[1:] if v1 else length)
        topic = int16_at(length, 0)
        properties_at = topic_at + (1 if v1 else 2) + topic
        if topic < 0 or properties_at + 2 > min(end, self._data_end):
            return False
        self._read(properties_at, length)
        return properties_at + 2 + max(0, int16_at(length, 0)) == end

    def more(self, at: int, want: int, limit: int, ahead: int = 0) -> int:
        """Get at least ``want`` bytes from ``data[at]`` on; return the new index of that byte.

        A chunk is filled, but not past the absolute offset ``limit``. ``ahead`` bytes behind those wanted are read as well,
        limit or not.
        """
        start = self.base + at
        end = min(max(start + want + ahead, min(limit, start + self._chunk)), self._data_end)
        view = self._view(start, end - start) if self._view else None
        if view is None:
            return self._copy(at, want, limit, ahead)
        fresh = self.end
        self.data, self.base, self.filled = view, start, len(view)
        self._seen(fresh, view[fresh - start :])
        return 0

    def _copy(self, at: int, want: int, limit: int, ahead: int) -> int:
        buffer = self._buffer
        if self.data is not buffer or at + want > len(buffer):
            kept = self.data[at : self.filled]
            # For a large record half a chunk is added: images of such records can begin at any byte, and for each of them all
            # bytes of the buffer would be moved.
            size = self._chunk if want <= self._chunk // 2 else want + self._chunk // 2
            if max(size, len(kept)) > len(buffer):
                buffer = np.empty(max(size, len(kept)), np.uint8)
                buffer[: len(kept)] = kept
            else:
                buffer[: len(kept)] = kept.copy()
            self._buffer = self.data = buffer
            self.base, self.filled, at = self.base + at, len(kept), 0
        room = self.base + len(buffer)
        end = min(max(self.base + at + want + ahead, min(limit, room)), room, self._data_end)
        start, fresh = self.end, buffer[self.filled : end - self.base]
        self._read(start, fresh)
        self._seen(start, fresh)
        self.filled = end - self.base
        return at

    def pass_on(self, until: int) -> None:
        """Hand the bytes that follow, up to absolute offset ``until``, to ``seen``, without keeping them."""
        until = min(until, self._data_end)
        while self.end < until:
            self.more(self.filled, 1, until)

    @property
    def end(self) -> int:
        """The absolute offset behind the last byte in memory."""
        return self.base + self.filled


# ----------------------------------------------------------------------------------------------------------------- stale_passes
# Passes over a segment's bytes for ``scan.stale_tail``: store times around damage, queue offsets on both sides of a gap.

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
    """Return whether a magic code stands at ``data[at]``, and a physical offset that is its own."""
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

    Good records are walked up to the first hole; behind it every byte is looked at. Return where to go on, or -1 where a good
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

    What stands at ``end`` itself is damaged, and is passed over: perhaps only the CRC of the whole record says so. Return a
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
