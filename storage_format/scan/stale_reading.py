"""What the bytes of a segment say on both sides of damage: store times, and the queue offsets of queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MIN
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import TOTAL, new_record
from rocketmq_reindex.storage_format.versions import NEWEST
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.name_table import NameTable
from rocketmq_reindex.storage_format.walk.stale_passes import (
    COVERED,
    FIRST,
    HEAD,
    LIVE_TIME,
    NAME_END,
    NAME_START,
    NEXT,
    RECORDS,
    STATE_SIZE,
    TIME,
    HoleArrays,
    OffsetArrays,
    note_queues,
    note_times,
)
from rocketmq_reindex.storage_format.walk.window import ReadInto, View, Window

Int64s = npt.NDArray[np.int64]

CHUNK: Final = 32 << 20
NO_TIME: Final = INT64_MIN


class Times(NamedTuple):
    """Store times around each hole, int64 (holes,) in milliseconds, NO_TIME for none.

    ``before`` and ``after`` are those of the good records next to it, ``newest`` the latest of all from behind it to the
    segment's end.
    """

    before: Int64s
    after: Int64s
    newest: Int64s


class QueuesAround(NamedTuple):
    """The records on both sides of a gap.

    ``first`` is the offset of the first one behind it, -1 for none, ``records`` and ``covered`` how many there are and their
    bytes. Of the queues with records on both sides, ``repeats`` have offsets that repeat, ``going_on`` go on where they were,
    and ``jumps`` jump ahead over ``missing`` offsets in all.
    """

    first: int
    records: int
    covered: int
    repeats: int
    going_on: int
    jumps: int
    missing: int


class SegmentReading:
    """Reads one segment: ``start``, ``data_end`` and ``segment_end`` as in ``RangeSpec``."""

    def __init__(self, start: int, data_end: int, segment_end: int, read: ReadInto, view: View | None) -> None:
        self._start, self._data_end, self._segment_end = start, data_end, segment_end
        self._read, self._view = read, view

    def _window(self, at: int) -> Window:
        window = Window(CHUNK)
        window.open(at, self._segment_end, self._data_end, self._read, self._view)
        return window

    def times(self, holes: Sequence[tuple[int, int]]) -> Times | None:
        """The times around ``holes``, (offset, length) ascending. None where a good record should stand, and does not."""
        starts, lengths = (np.array(column, np.int64) for column in zip(*holes, strict=True))
        around = HoleArrays(starts, starts + lengths, *(np.full(len(holes), NO_TIME) for _ in range(3)))
        state = np.zeros(STATE_SIZE, np.int64)
        state[NEXT], state[TIME] = self._start, NO_TIME
        window, at = self._window(self._start), 0
        while (phy_offset := window.base + at) + HEAD <= self._data_end:
            if at + HEAD > window.filled:
                at = window.more(at, HEAD, self._data_end)
            limit = window.filled - HEAD + 1
            at = int(note_times(window.stretch, at, limit, around, state))
            if at < 0:
                window.close()
                return None
            if at > window.filled:
                # A record that ends behind what is in memory was walked over.
                phy_offset = window.base + at
                window.close()
                window, at = self._window(phy_offset), 0
        window.close()
        return Times(around.before, around.after, np.maximum.accumulate(around.behind[::-1])[::-1])

    def queues(self, holes: Sequence[tuple[int, int]], live: int) -> QueuesAround | None:
        """The records in front of the last of ``holes``, and those behind it that were stored before ``live`` (milliseconds).

        None where other damage lies in front of it, or too much would have to be read.
        """
        end = holes[-1][0]
        starts = [self._start, *(at + length for at, length in holes[:-1]), end]
        limits = [*(at for at, _ in holes), self._data_end]
        met = _Met(live)
        for start, limit in zip(starts, limits, strict=True):
            if start < limit and not self._note_queues(met, start, limit, end):
                return None
        return met.around(end)

    def _note_queues(self, met: _Met, start: int, limit: int, end: int) -> bool:
        """Note the records that start in [start, limit); ``end`` is where the gap begins. Whether that could be done."""
        window = self._window(start)
        at = window.more(0, 1, limit)
        while True:
            # A head is looked at where all of it is there.
            stop = min(limit - window.base, window.filled - (HEAD - 1 if start == end else 0))
            code, at = note_queues(
                window.stretch, at, stop, end, met.names.arrays, met.queues, met.offsets, met.queue_state, met.state, met.record
            )
            code, at = int(code), int(at)
            phy_offset = window.base + at
            if code == r.NEW_NAME:
                met.names.add(window.data[met.state[NAME_START] : met.state[NAME_END]].tobytes())
            elif code == r.QUEUES_FULL:
                met.grow()
            elif code == r.MORE:
                at = window.more(at, int(met.record.rec[TOTAL]), limit)
            elif code == r.NOT_FOUND or phy_offset >= limit or (start == end and phy_offset + r.RECORD_MIN > self._data_end):
                window.close()
                return code != r.NOT_FOUND
            else:
                at = window.more(at, min(HEAD, self._data_end - phy_offset), limit)

    def last_byte(self, low: int) -> int:
        """The last byte that is not zero from ``low`` on."""
        high = self._data_end
        while high > low:
            at = max(low, high - CHUNK)
            piece = np.empty(high - at, np.uint8)
            self._read(at, piece)
            nonzero = np.flatnonzero(piece)
            if len(nonzero):
                return at + int(nonzero[-1])
            high = at
        return low


class _Met:
    """Queues, with the last queue offset in front of the gap and the first one behind it, -1 for none."""

    def __init__(self, live: int) -> None:
        self.names, self.queues = NameTable(NEWEST, (), ()), w.new_queues(1 << 12)
        self.offsets = OffsetArrays(np.full(1 << 11, -1, np.int64), np.full(1 << 11, -1, np.int64))
        self.record = new_record()
        self.state, self.queue_state = np.zeros(STATE_SIZE, np.int64), np.zeros(w.STATE_SIZE, np.int64)
        self.state[FIRST], self.state[LIVE_TIME] = -1, live

    def grow(self) -> None:
        self.queues = w.grown_queues(self.queues, self.queue_state)
        room = np.full(len(self.offsets.last), -1, np.int64)
        self.offsets = OffsetArrays(*(np.concatenate([column, room]) for column in self.offsets))

    def around(self, end: int) -> QueuesAround:
        count, state = int(self.queue_state[w.QUEUES]), self.state
        last, first = (column[:count] for column in self.offsets)
        both = (last >= 0) & (first >= 0)
        gap_records = (int(state[FIRST]) - end) // r.RECORD_MIN
        # A topic made anew in the gap would begin again at 0, and no more of it is lost than the gap can hold.
        repeats = int(np.count_nonzero(both & (first <= last) & (first > gap_records)))
        going_on = int(np.count_nonzero(both & (first == last + 1)))
        gaps = np.minimum((first - last - 1)[both & (first > last + 1)], 1 << 40)
        counts = int(state[FIRST]), int(state[RECORDS]), int(state[COVERED])
        return QueuesAround(*counts, repeats, going_on, len(gaps), int(gaps.sum()))
