"""Tell old records behind the log's end, a stale tail, from damage in the middle of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.layouts import INT64_MIN
from rocketmq_reindex.storage_format.record import layout as r, state as w
from rocketmq_reindex.storage_format.record.frame import TOTAL, new_record
from rocketmq_reindex.storage_format.record.name_table import NameTable
from rocketmq_reindex.storage_format.record.window import (
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
    HoleArrays,
    OffsetArrays,
    ReadInto,
    View,
    Window,
    note_queues,
    note_times,
)
from rocketmq_reindex.storage_format.versions import NEWEST

# ---------------------------------------------------------------------------------------------------------------- stale reading
# What the bytes of a segment say on both sides of damage: store times, and the queue offsets of queues.

Int64s = npt.NDArray[np.int64]

CHUNK: Final = 32 << 20
NO_TIME: Final = INT64_MIN


class HoleTimes(NamedTuple):
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

    def times(self, holes: Sequence[tuple[int, int]]) -> HoleTimes | None:
        """Return the times around ``holes``, (offset, length) ascending; None where no good record stands in front of them."""
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
        return HoleTimes(around.before, around.after, np.maximum.accumulate(around.behind[::-1])[::-1])

    def queues(self, holes: Sequence[tuple[int, int]], live: int) -> QueuesAround | None:
        """Return the records in front of the last of ``holes``, and those behind it stored before ``live`` (milliseconds).

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
        """Return the last byte that is not zero from ``low`` on."""
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
        on_both_sides = (last >= 0) & (first >= 0)
        gap_records = (int(state[FIRST]) - end) // r.RECORD_MIN
        # A topic made anew in the gap would begin again at 0, and no more of it is lost than the gap can hold.
        repeats = int(np.count_nonzero(on_both_sides & (first <= last) & (first > gap_records)))
        going_on = int(np.count_nonzero(on_both_sides & (first == last + 1)))
        gaps = np.minimum((first - last - 1)[on_both_sides & (first > last + 1)], 1 << 40)
        counts = int(state[FIRST]), int(state[RECORDS]), int(state[COVERED])
        return QueuesAround(*counts, repeats, going_on, len(gaps), int(gaps.sum()))


# ------------------------------------------------------------------------------------------------------------------- stale tail
# A broker that truncates its log moves the write position and zeroes nothing (``MappedFileQueue.truncateDirtyFiles``): after a
# crash (``CommitLog.recoverNormally``, ``recoverAbnormally``), and where a slave drops what its master lacks. The log then goes
# on over the old bytes. Behind its end lie the rest of the old record that was overwritten last, the gap, and whole old
# records.
#
# They are stale when all of this holds:
#
# - The broker stored every one of them before the last good record in front of the gap. Everything that names its own offset
#   counts as a record here, sound or not: an image in a body can make a stale tail look like damage, but not the reverse.
# - That last good record is no image: from the segment's start to it one record follows on the other, or on damage of which the
#   length is known.
# - Damage cannot explain them. The gap is too short for a record's head. Or queue offsets repeat, or so many are missing that
# the
#   gap could not hold their records, and that in more queues than go on as if nothing was lost. (Where a clock was set back,
# what
#   lies behind damage is older, too, but its queues go on.) Or the store's checkpoint names the record in front of the gap as
# the
#   last one. A checkpoint that names a later record speaks against it.
# - The last segment with data holds all of them: a truncation deletes the segments behind. What is no record there is short.

STALE: Final = "stale tail"
"""How the reason of a stale tail begins."""
_LOOKS: Final = 8
"""Damaged stretches behind which queue offsets are looked at, where not all records behind are older."""


class DamagedStretch(NamedTuple):
    """A stretch of the log that is no good record.

    ``framed``: its length is that of a record whose size holds. ``sound``: the record's CRC holds, too, and it was refused for
    what it says. The log goes on behind such a record: no stale tail begins with it. ``code`` says why it was refused.
    """

    offset: int
    length: int
    framed: bool
    sound: bool = False
    code: int = r.BAD_MAGIC

    @classmethod
    def of(cls, offset: int, length: int, code: int) -> DamagedStretch:
        """Return the stretch of a hole; ``code`` says why the record was refused, as in ``record.layout``."""
        framed = code >= r.FIRST_FRAMED
        return cls(offset, length, framed, framed and code not in (r.BAD_BODY_CRC, r.BAD_PROPERTY_CRC), code)


def damage_of(holes: Iterable[Sequence[int]]) -> list[DamagedStretch]:
    """Return the holes of a range's summary, [phy_offset, bytes, code] each, as damage."""
    return [DamagedStretch.of(offset, length, code) for offset, length, code in holes]


@dataclass(frozen=True)
class StaleTail:
    """Old records from ``offset`` on, behind the log's end: how many whole ones, and the proof that they are old."""

    offset: int
    length: int
    records: int
    proof: str

    @property
    def reason(self) -> str:
        """The reason that a summary gives for a stale tail."""
        what = f"{self.records} old records" if self.records else "old entries"
        return f"{STALE}: {what} behind the log's end, left by a truncation: {self.proof}"


@dataclass(frozen=True)
class Doubt:
    """Damage at ``offset`` that may be a stale tail; ``why`` says what speaks against it.

    ``all_older``: every record behind it is older than what lies in front of it, not only some.
    """

    offset: int
    why: str
    all_older: bool = True


def are_in_time(
    holes: Sequence[Sequence[int]], before: tuple[int, int], phy_offset: Int64s, size: npt.NDArray[np.int32],
    time: Callable[[int], int],
) -> bool:  # fmt: skip
    """Return whether right in front of each hole and right behind it records lie of which the later one is no older.

    Then a stale tail begins at none of them. ``holes`` are as in ``damage_of``. ``before`` is the end of the record in front of
    all, and its store time; ``phy_offset`` and ``size`` are those of the records behind that one, and ``time`` gives the store
    time of one, by its number.
    """
    number = 0
    while number < len(holes):
        low = high = holes[number][0]
        while number < len(holes) and holes[number][0] == high:
            high += holes[number][1]
            number += 1
        at = int(np.searchsorted(phy_offset, low))
        end, live = (int(phy_offset[at - 1] + size[at - 1]), time(at - 1)) if at else before
        if end != low or at == len(phy_offset) or phy_offset[at] != high or time(at) < live:
            return False
    return True


def old_entries(holes: Sequence[DamagedStretch], last_good: int) -> StaleTail | None:
    """Return the old entries of DLedger behind the log's end, with the damage right in front of them; None for none.

    ``last_good`` is the offset of the last good record. Their order is the proof: nothing else is older in time and has an
    index or a term that is over. A node that truncates its log leaves them (``DLedgerMmapFileStore.truncate``).
    """
    behind = [hole for hole in holes if hole.offset > last_good]
    old = [hole for hole in behind if hole.code == r.STALE_ENTRY]
    if not old or any(hole.code == r.BAD_ORDER for hole in behind):
        return None
    end = behind[-1].offset + behind[-1].length
    proof = "older than those before them, and their term or index is over"
    return StaleTail(behind[0].offset, end - behind[0].offset, 0, proof)


class StaleTailSearch:
    """Looks for a stale tail in one segment. The answer comes from its bytes alone: it depends on no ranges and no policy."""

    def __init__(
        self,
        start: int,
        data_end: int,
        segment_end: int,
        read: ReadInto,
        view: View | None,
        checkpoint_times: tuple[int, int] = (0, 0),
    ) -> None:
        """``start``, ``data_end`` and ``segment_end`` as in ``RangeSpec``, ``read`` and ``view`` as for ``RangeScanner.scan``.

        ``checkpoint_times``: physicMsgTimestamp and logicsMsgTimestamp of the store's checkpoint, in milliseconds; a time of 0
        or less names no record, as where there is no checkpoint.
        """
        self._reading = SegmentReading(start, data_end, segment_end, read, view)
        self._physic = checkpoint_times[0]
        self._named = {time for time in checkpoint_times if time > 0}

    def find(self, holes: Sequence[DamagedStretch]) -> StaleTail | Doubt | None:
        """Return the segment's stale tail; a Doubt where it is not certain; None where the damage is damage.

        ``holes`` are all stretches that are no good records, ascending; good records follow each.
        """
        # Only what lies in front of the first damage of unknown length is known to be of the log.
        known = next((number for number, hole in enumerate(holes) if not hole.framed), len(holes) - 1) + 1
        spans = [(hole.offset, hole.length) for hole in holes]
        times = self._reading.times(spans)
        if times is None:
            return None
        may_begin = ~np.array([hole.sound for hole in holes], bool) & (times.before != NO_TIME)
        stale = np.flatnonzero(may_begin & (times.newest != NO_TIME) & (times.newest < times.before))
        if len(stale) and stale[0] < known:
            number = int(stale[0])
            return self._prove(spans[: number + 1], int(times.before[number]))
        older = np.flatnonzero(may_begin & (times.after != NO_TIME) & (times.after < times.before))
        return self._doubt(spans, older, known, times.before)

    def _doubt(
        self, holes: list[tuple[int, int]], older: npt.NDArray[np.intp], known: int, before: npt.NDArray[np.int64]
    ) -> Doubt | None:
        """Return the doubt of the first damage that older records follow, and behind which queue offsets repeat; None for none.

        They prove nothing by their age: newer records follow, too, or other damage lies before them.
        """
        for number in older[:_LOOKS].tolist():
            around = self._reading.queues(holes[: number + 1], int(before[number]))
            if around is not None and around.repeats:
                why = "not all records behind it are older" if number < known else "there is damage before it"
                return Doubt(holes[number][0], f"{why}, and queue offsets repeat", all_older=False)
        return None

    def _prove(self, holes: list[tuple[int, int]], live: int) -> StaleTail | Doubt | None:
        """Return the stale tail behind the last of these holes, or why it is doubtful.

        All that lies there is older than ``live``, the time of the last record.
        """
        offset = holes[-1][0]
        around = self._reading.queues(holes, live)
        if around is None or around.first < 0:
            return None
        end = self._reading.last_byte(offset) + 1
        if end - offset - around.covered > LONGEST:
            return Doubt(offset, f"more than {LONGEST:,} bytes behind it are no records")
        if self._physic > max(live, 0):
            why = f"the checkpoint tells of a record stored at {self._physic}, the last one before it is of {live}"
            return Doubt(offset, why)
        proof = self._proof(around, around.first - offset, live)
        if proof is None:
            return Doubt(offset, "all records behind it are older, but their queue offsets do not tell")
        return StaleTail(offset, end - offset, around.records, f"older than what lies before them, {proof}")

    def _proof(self, around: QueuesAround, gap: int, live: int) -> str | None:
        """Return why damage cannot explain the records behind a gap of so many bytes; None where it can."""
        if gap < r.HEADER_SIZE:
            return f"and {gap} bytes between are less than a record"
        if around.repeats > around.going_on:
            return f"and they repeat offsets of queues ({around.repeats})"
        if around.missing > gap // r.RECORD_MIN and around.repeats + around.jumps > around.going_on:
            return f"and {gap} bytes between cannot hold {around.missing} records"
        if live in self._named:
            return "which the checkpoint knows as the log's last record"
        return None
