"""Tell old records behind the log's end, a stale tail, from damage in the middle of the log.

A broker that truncates its log moves the write position and zeroes nothing (``MappedFileQueue.truncateDirtyFiles``): after a
crash (``CommitLog.recoverNormally``, ``recoverAbnormally``) and where a slave drops what its master lacks. The log then goes on
over the old bytes. Behind its end lie the rest of the old record that was overwritten last, the gap, and whole old records.

They are stale when all of this holds:

- The broker stored every one of them before the last good record in front of the gap. Every place that tells its own offset
  counts as a record here, sound or not: an image in a body can make a stale tail look like damage, but not the reverse.
- That last good record is no image: from the segment's start to it one record follows on the other, or on damage of which the
  length is known.
- Damage cannot explain them. The gap is too short for a record's head. Or queue offsets repeat, or so many are missing that the
  gap could not hold their records, and that in more queues than go on as if nothing was lost. (Where a clock was set back, what
  lies behind damage is older, too, but its queues go on.) Or the store's checkpoint names the record in front of the gap as the
  last one. One that names a later record objects.
- The last segment with data holds all of them: a truncation deletes the segments behind. What is no record there is short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import REC_SIZE, SPANS_SIZE, TOTAL
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.name_table import NameTable
from rocketmq_reindex.storage_format.walk.stale_passes import (
    COVERED,
    FIRST,
    HEAD,
    LIVE_TIME,
    LONGEST,
    NAME_END,
    NAME_START,
    NEXT,
    RECORDS,
    STATE_SIZE,
    TIME,
    note_queues,
    note_times,
)
from rocketmq_reindex.storage_format.walk.window import ReadInto, View, Window

Int64s = npt.NDArray[np.int64]

CHUNK: Final = 32 << 20
_LOOKS: Final = 8
"""damaged places of which it is asked whether queue offsets repeat behind them"""
_NO_TIME: Final = -(2**63)


class Damage(NamedTuple):
    """A stretch that is no good record. ``framed``: a record's own length, which holds, gives its end.

    ``sound``: it is one whose CRC holds, too, refused for what it says. The log goes on behind it: it begins no stale tail.
    """

    offset: int
    length: int
    framed: bool
    sound: bool = False

    @classmethod
    def of(cls, offset: int, length: int, code: int) -> Damage:
        """``code``: of ``record``, why it was refused."""
        framed = code >= r.FIRST_FRAMED
        return cls(offset, length, framed, framed and code not in (r.BAD_BODY_CRC, r.BAD_PROPERTY_CRC))


@dataclass(frozen=True)
class StaleTail:
    """Old records from ``offset`` on, behind the log's end: how many whole ones, and the proof that they are old."""

    offset: int
    length: int
    records: int
    proof: str


@dataclass(frozen=True)
class Doubt:
    """Damage at ``offset`` that may be a stale tail; ``why`` says what is against it.

    ``all_older``: every record behind it is older than what lies in front of it, not only some.
    """

    offset: int
    why: str
    all_older: bool = True


@dataclass(frozen=True)
class _Queues:
    """What the records on both sides of a gap say.

    ``first``: where the first one behind it stands; ``records`` and ``covered``: how many there are, and their bytes. Of
    queues with records on both sides: of ``repeats`` offsets repeat, ``going_on`` go on where they were, ``jumps`` jump ahead;
    ``missing`` offsets lie between.
    """

    first: int
    records: int
    covered: int
    repeats: int
    going_on: int
    jumps: int
    missing: int


class StaleTailJudge:
    """Judges the damage of one segment, from its bytes alone: the verdict depends on no ranges and no policy."""

    def __init__(
        self, start: int, data_end: int, segment_end: int, read: ReadInto, view: View | None, told: tuple[int, int] = (0, 0)
    ) -> None:
        """``told``: physicMsgTimestamp and logicsMsgTimestamp of the store's checkpoint; 0 where there is none."""
        self._start, self._data_end, self._segment_end = start, data_end, segment_end
        self._read, self._view = read, view
        self._told = told

    def judge(self, holes: list[Damage]) -> StaleTail | Doubt | None:
        """``holes`` are all stretches that are no good records, ascending; good records follow each.

        None: it is damage, and nothing speaks for a stale tail.
        """
        known = next((number for number, hole in enumerate(holes) if not hole.framed), len(holes) - 1)
        sound = np.array([hole.sound for hole in holes], bool)
        return self._judge([(hole.offset, hole.length) for hole in holes], known + 1, sound)

    def _judge(self, holes: list[tuple[int, int]], known: int, sound: npt.NDArray[np.bool_]) -> StaleTail | Doubt | None:
        """Only what lies in front of the first ``known`` holes is known to be of the log."""
        times = self._times(holes)
        if times is None:
            return None
        before, after, newest = times
        stale = np.flatnonzero(~sound & (before != _NO_TIME) & (newest != _NO_TIME) & (newest < before))
        if len(stale) and stale[0] < known:
            number = int(stale[0])
            return self._prove(holes[: number + 1], int(before[number]))
        # Older ones follow, but not only such; or what they are older than may be an image.
        older = np.flatnonzero(~sound & (before != _NO_TIME) & (after != _NO_TIME) & (after < before))
        for number in older[:_LOOKS].tolist():
            found = self._queues(holes[: number + 1], int(before[number]))
            if found is not None and found.repeats:
                why = "not all records behind it are older" if number < known else "there is damage before it"
                return Doubt(holes[number][0], f"{why}, and queue offsets repeat", all_older=False)
        return None

    def _prove(self, holes: list[tuple[int, int]], live: int) -> StaleTail | Doubt | None:
        """Of what lies behind the last of these holes all is older than ``live``: can damage explain it?"""
        offset = holes[-1][0]
        found = self._queues(holes, live)
        if found is None or found.first < 0:
            return None
        end = self._last_byte(offset) + 1
        gap = found.first - offset
        most = gap // r.RECORD_MIN
        if end - offset - found.covered > LONGEST:
            return Doubt(offset, f"more than {LONGEST:,} bytes behind it are no records")
        if self._told[0] > live:
            why = f"the checkpoint tells of a record stored at {self._told[0]}, the last one before it is of {live}"
            return Doubt(offset, why)
        if gap < r.HEADER_SIZE:
            proof = f"older than what lies before them, and {gap} bytes between are less than a record"
        elif found.repeats > found.going_on:
            proof = f"older than what lies before them, and they repeat offsets of queues ({found.repeats})"
        elif found.missing > most and found.repeats + found.jumps > found.going_on:
            proof = f"older than what lies before them, and {gap} bytes between cannot hold {found.missing} records"
        elif live in self._told:
            proof = "older than what lies before them, which the checkpoint knows as the log's last record"
        else:
            return Doubt(offset, "all records behind it are older, but their queue offsets do not tell")
        return StaleTail(offset, end - offset, found.records, proof)

    # -- passes over the segment --------------------------------------------------------------------------------------

    def _window(self, at: int) -> Window:
        window = Window(CHUNK)
        window.open(at, self._data_end, self._read, self._view, lambda _at, _data: None)
        return window

    def _times(self, holes: list[tuple[int, int]]) -> tuple[Int64s, Int64s, Int64s] | None:
        """For each hole the times of the good records before it and behind it, and the latest up to the segment's end."""
        at_, ends = (np.array(column, np.int64) for column in zip(*((at, at + length) for at, length in holes), strict=True))
        before, after, behind = (np.full(len(holes), _NO_TIME) for _ in range(3))
        state = np.zeros(STATE_SIZE, np.int64)
        state[NEXT], state[TIME] = self._start, _NO_TIME
        window, at = self._window(self._start), 0
        while (place := window.base + at) + HEAD <= self._data_end:
            if at + HEAD > window.filled:
                at = window.more(at, HEAD, self._data_end)
            limit = window.filled - HEAD + 1
            at = int(note_times(window.data, window.base, at, limit, at_, ends, before, after, behind, state))
            if at < 0:
                window.close()
                return None
            if at > window.filled:
                # A record that ends behind what is in memory was walked over.
                place = window.base + at
                window.close()
                window, at = self._window(place), 0
        window.close()
        return before, after, np.maximum.accumulate(behind[::-1])[::-1]

    def _queues(self, holes: list[tuple[int, int]], live: int) -> _Queues | None:
        """What stands in front of the last of these holes, and behind it, stored before ``live``. None: other damage."""
        names, rec, spans = NameTable("5.3", (), ()), np.zeros(REC_SIZE, np.int64), np.zeros(SPANS_SIZE, np.int64)
        state, queue_state = np.zeros(STATE_SIZE, np.int64), np.zeros(w.STATE_SIZE, np.int64)
        state[FIRST], state[LIVE_TIME] = -1, live
        table = _QueueTable(1 << 12)
        end = holes[-1][0]
        starts = [self._start, *(at + length for at, length in holes[:-1]), end]
        limits = [*(at for at, _ in holes), self._data_end]
        for start, limit in zip(starts, limits, strict=True):
            if start >= limit:
                continue
            window, at = self._window(start), 0
            at = window.more(at, 1, limit)
            while True:
                # A head is looked at where all of it is there.
                stop = min(limit - window.base, window.filled - (HEAD - 1 if start == end else 0))
                code, at = note_queues(
                    window.data, window.filled, window.base, at, stop, self._segment_end, self._data_end, end,
                    names.arrays, table.queues, table.last, table.first, queue_state, state, rec, spans,
                )  # fmt: skip
                code, at = int(code), int(at)
                place = window.base + at
                if code == r.NEW_NAME:
                    names.add(window.data[state[NAME_START] : state[NAME_END]].tobytes())
                elif code == r.QUEUES_FULL:
                    table = table.grown(queue_state)
                elif code == r.MORE:
                    at = window.more(at, int(rec[TOTAL]), limit)
                elif code == r.NOT_FOUND:
                    window.close()
                    return None
                elif place >= limit or (start == end and place + r.RECORD_MIN > self._data_end):
                    break
                else:
                    at = window.more(at, min(HEAD, self._data_end - place), limit)
            window.close()
        count = int(queue_state[w.QUEUES])
        last, first = table.last[:count], table.first[:count]
        both = (last >= 0) & (first >= 0)
        most = (int(state[FIRST]) - end) // r.RECORD_MIN
        # A topic made anew in the gap would begin again at 0, and no more of it is lost than the gap can hold.
        repeats = int(np.count_nonzero(both & (first <= last) & (first > most)))
        going_on = int(np.count_nonzero(both & (first == last + 1)))
        gaps = np.minimum((first - last - 1)[both & (first > last + 1)], 1 << 40)
        counts = int(state[FIRST]), int(state[RECORDS]), int(state[COVERED])
        return _Queues(*counts, repeats, going_on, len(gaps), int(gaps.sum()))

    def _last_byte(self, low: int) -> int:
        """The last byte that is not zero from ``low`` on."""
        high = self._data_end
        while high > low:
            at = max(low, high - CHUNK)
            piece = np.empty(high - at, np.uint8)
            self._read(at, piece)
            found = np.flatnonzero(piece)
            if len(found):
                return at + int(found[-1])
            high = at
        return low


class _QueueTable:
    """Queues, with the last queue offset in front of the gap and the first behind it."""

    def __init__(self, slots: int) -> None:
        half = slots // 2
        self.queues = w.QueueArrays(
            np.full(slots, -1, np.int32), np.zeros(half, np.int32), np.zeros(half, np.int32), np.full(half, -1, np.int64)
        )
        self.last, self.first = np.full(half, -1, np.int64), np.full(half, -1, np.int64)

    def grown(self, state: Int64s) -> _QueueTable:
        count, new = int(state[w.QUEUES]), _QueueTable(2 * len(self.queues.slots))
        state[w.QUEUES] = 0
        for k in range(count):
            w.enter_queue(new.queues, state, int(self.queues.name[k]), int(self.queues.queue_id[k]))
        new.last[:count], new.first[:count] = self.last[:count], self.first[:count]
        return new
