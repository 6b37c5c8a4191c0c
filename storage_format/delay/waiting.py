"""Decide which delayed and timer messages wait, where a broker goes on with them, and which a start loses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import COPY, DISCARD, EVIDENCE, FIRED, HALF, SCHEDULED, TIMED, Int64s, Rows
from rocketmq_reindex.storage_format.delay.settings import DROP
from rocketmq_reindex.storage_format.delay.wheel import LogFile, Wheel, begin_of, rows_at, rows_since
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE

# --------------------------------------------------------------------------------------------------------------- join by digest
# Which scheduled messages were delivered, by the records of one digest in the order of the log.

OPEN, SETTLED, UNCLEAR = range(3)
"""Of a record: nothing follows it; it was delivered, rolled on, written anew or given up; others are like it, and some were
delivered"""
Bools = npt.NDArray[np.bool_]
_COPIES: Final = (COPY, FIRED)


@jit
def _settle(first: Bools, kind: Int64s, rolls: Int64s, out: Int64s) -> None:
    begin = head = renewed = dropped = 0
    for n in range(len(kind)):
        if first[n]:
            begin = head = renewed = dropped = n
        if kind[n] == COPY or kind[n] == FIRED:
            while head < n and (out[head] != OPEN or kind[head] == COPY or kind[head] == FIRED):
                head += 1
            if head < n:
                out[head] = SETTLED
            out[n] = SETTLED
        elif kind[n] == TIMED and rolls[n] > 0:
            rolled_again = False
            for m in range(begin, n):
                if kind[m] != TIMED:
                    continue
                if rolls[m] == rolls[n] - 1 and out[m] == OPEN:
                    out[m] = SETTLED
                    rolled_again = False
                    break
                rolled_again = rolled_again or rolls[m] == rolls[n]
            if rolled_again:
                # A broker that was killed rolls the same message once more.
                out[n] = SETTLED
        elif kind[n] == HALF and rolls[n] > 0:
            # TransactionalMessageServiceImpl.needDiscard counts each check: without the count it is none of its copies.
            while renewed < n:
                if kind[renewed] == HALF:
                    out[renewed] = SETTLED
                renewed += 1
        elif kind[n] == DISCARD:
            # What is given up for its age was counted once more; what had too many checks was not. Another copy with as many
            # checks is given up next.
            while dropped < n and not (
                kind[dropped] == HALF and out[dropped] == OPEN and rolls[n] - 1 <= rolls[dropped] <= rolls[n]
            ):
                dropped += 1
            if dropped < n:
                out[dropped] = SETTLED
                dropped += 1
            out[n] = SETTLED


def join(rows: Rows) -> tuple[Rows, Int64s]:
    """Return the rows of EVIDENCE by digest, each digest in the order of the log; and of each OPEN, SETTLED or UNCLEAR.

    The i-th copy of a digest settles its i-th scheduled record, if that is before it. A roll settles the record with one roll
    less. The copy of a half message that a check wrote settles all that are before it; one that was given up is settled, too.
    """
    rows = rows[np.lexsort((rows["phy_offset"], rows["digest2"], rows["digest"]))]
    first = _firsts(rows)
    out = np.zeros(len(rows), np.int64)
    if not len(rows):
        return rows, out
    kind = np.ascontiguousarray(rows["kind"])
    _settle(first, kind, np.ascontiguousarray(rows["rolls"]), out)
    starts = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    waiting = (kind == SCHEDULED) | (kind == TIMED)
    copies = np.add.reduceat(np.isin(kind, _COPIES).astype(np.int64), starts)[group]
    several = np.add.reduceat(waiting.astype(np.int64), starts)[group] > 1
    out[waiting & (out == OPEN) & several & (copies > 0) & (rows["keyed"] == 0)] = UNCLEAR
    return rows, out


def last_check(rows: Rows) -> tuple[int, int]:
    """Return what the last check did, by the rows that ``join`` returned: (where its record lies, queue offset that it had come
    to).

    A check walks up the queue and writes the half message anew, or gives it up; the record tells one more check than the one
    it was made of. Where several fit, it is the lowest: a broker that was killed may have walked there again. -1: unknown.
    """
    kind, rolls, place = rows["kind"], rows["rolls"], rows["phy_offset"]
    made = np.flatnonzero(((kind == HALF) & (rolls > 0)) | (kind == DISCARD))
    if not len(made):
        return -1, -1
    last = made[np.argmax(place[made])]
    group = np.cumsum(_firsts(rows))
    least = rolls[last] - 1
    fits = (rolls == least) | ((rolls == least + 1) & (kind[last] == DISCARD))
    sources = rows["queue_offset"][(group == group[last]) & (kind == HALF) & (place < place[last]) & fits]
    return int(place[last]), int(sources.min()) if len(sources) else -1


def _firsts(rows: Rows) -> Bools:
    """Return whether a row is the first of its digest."""
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows["digest"][1:] != rows["digest"][:-1]) | (rows["digest2"][1:] != rows["digest2"][:-1])
    return first


def recalled(rows: Rows, step: int) -> Bools:
    """Return which rows of EVIDENCE are delete marks and the messages that they cancel: due in the same ``step`` of
    milliseconds.

    A mark works on the messages of its slot (``TimerMessageStore.dequeue``).
    """
    marks = rows["delete"] > 0
    cancelled: Bools = (rows["key"] != 0) & np.isin(rows["key"], rows["key"][marks])
    pairs = np.zeros(int(np.count_nonzero(cancelled)), np.dtype([("key", "<i8"), ("slot", "<i8")]))
    pairs["key"], pairs["slot"] = rows["key"][cancelled], rows["due"][cancelled] // step
    cancelled[cancelled] = np.isin(pairs, np.intersect1d(pairs[marks[cancelled]], pairs[~marks[cancelled]]))
    return cancelled


# ------------------------------------------------------------------------------------------------------------ offsets of levels
# At which queue offset a broker goes on with a delay level, and with the checks of half messages.
#
# It delivers a level in the order of its queue: the offset that it kept (``ScheduleMessageService.offsetTable``) was one above
# the highest that it had delivered. It checks half messages in the order of theirs (``TransactionalMessageServiceImpl.check``).

BELOW: Final = "no copy, though later ones of its level were delivered"
DAMAGE: Final = "was due, and its copy may lie in damage"
ALIKE: Final = "others are like it and have no UNIQ_KEY, and only some of them were delivered"
REASONS: Final = (BELOW, DAMAGE, ALIKE)


@dataclass(frozen=True)
class LevelOffset:
    """The offset of one level, and how many messages below the highest delivered one are delivered again by it."""

    offset: int
    again: int


def level_offset(highest: int, undecided: Rows, policy: str) -> LevelOffset:
    """Return the offset of a level of which ``highest`` is the highest delivered queue offset (-1: none).

    ``undecided`` are rows of EVIDENCE, ascending by queue offset. DELIVER goes back to the first of them, DROP goes on behind
    the last one.
    """
    offset = highest + 1
    if not len(undecided):
        return LevelOffset(offset, 0)
    places = undecided["queue_offset"]
    if policy == DROP:
        return LevelOffset(max(offset, int(places[-1]) + 1), 0)
    back = min(offset, int(places[0]))
    return LevelOffset(back, max(0, offset - back - int(np.count_nonzero(places < offset))))


def doubtful(rows: Rows, highest: int, last_gap: int, last_time: int, unclear: npt.NDArray[np.int64]) -> tuple[Bools, ...]:
    """Return of which rows of EVIDENCE the log cannot tell whether they were delivered: masks for BELOW, DAMAGE and ALIKE,
    apart.

    ``last_gap`` is where the last damage ends (-1: none), ``last_time`` the store time of the log's last record, ``unclear``
    the physical offsets of those that others are like.
    """
    below = rows["queue_offset"] < highest
    damage = ~below & (rows["phy_offset"] < last_gap) & (rows["due"] <= last_time)
    return below, damage, ~below & ~damage & np.isin(rows["phy_offset"], unclear)


@dataclass(frozen=True)
class HalfOffsets:
    """Queue offsets of half messages: all below ``passed`` have a newer copy or are decided, and the last of them has a newer
    copy; ``pending`` is the first that has neither, as far as was looked; the last check had come to ``checked`` (-1: unknown).
    """

    passed: int
    pending: int
    checked: int

    def goes_on(self, kept: int | None) -> int:
        """Return where a broker goes on that was at ``kept`` by its own file (None: there is no file).

        What it has passed since the file was written need not be checked again. Its own offset is right where the last check
        had not come to it: copies that older checks left may lie above it.
        """
        if kept is None:
            return self.passed
        return max(kept, self.passed) if kept <= self.checked else kept


# --------------------------------------------------------------------------------------------------------------- timer messages
# Which timer messages a start loses, and which it delivers a second time: what it will read, beside what the log has.
#
# A message is lost where nothing leads to it any more, no copy of it lies in the log, and it was not due when the broker had
# read its slots last. It comes again where more leads to it than has to.

UNCOUNTED: Final = -1
KEPT: Final = np.dtype([("digest", "<i8"), ("rolls", "<i8"), ("comes", "<i8"), ("came", "<i8"), ("key", "<i8")])
"""A timer message that may be lost or come again: how often it ``comes`` by this record, and ``came`` before."""


@dataclass(frozen=True)
class TimerStart:
    """A start, as far as it matters here. Queue offsets are those of queue 0 of the timer topic, others bytes of the log.

    ``goes_on``: from there messages are taken into the wheel; ``known``: up to there they had been taken before;
    ``low`` and ``high``: those that the ConsumeQueue has when messages are taken. ``read_time``: all slots before it have been
    read, in milliseconds since 1970; ``newest``: the latest store time of the log. ``log_end``: where the log ends;
    ``dispatch_from``: from there records get units in the start, -1 for none.
    """

    goes_on: int
    known: int
    low: int
    high: int
    read_time: int
    newest: int
    log_end: int
    dispatch_from: int


@dataclass(frozen=True)
class TimerCounts:
    """How many messages are ``lost``, and how often one is delivered ``again``; UNCOUNTED where the log is too long."""

    lost: int
    again: int


def count(
    start: TimerStart, wheel: Wheel, queue: Sequence[LogFile], segments: Sequence[LogFile], limit: int
) -> TimerCounts:  # fmt: skip
    """Return how many timer messages a start loses or delivers again. ``queue`` are the files of the ConsumeQueue.

    At most ``limit`` bytes of the log are read for each of two steps.

    Cancelled messages are in neither number, nor are the marks that cancel them.
    """
    counter = _TimerCount(start, wheel, queue, segments, limit)
    counts = counter.count(False)
    # A message that rolled on has a record for each roll: another one of them may come.
    return counter.count(True) if counts.lost > 0 or counter.rolls else counts


class _TimerCount:
    def __init__(
        self, start: TimerStart, wheel: Wheel, queue: Sequence[LogFile], segments: Sequence[LogFile], limit: int
    ) -> None:
        self._start, self._wheel, self._queue, self._segments, self._left = start, wheel, queue, segments, limit
        self.rolls = False
        """a slot that may have been read holds messages which are due later"""
        low = begin_of(segments, start.read_time)
        low = min(low, start.dispatch_from) if start.dispatch_from >= 0 else low
        self._walked = start.log_end - low <= limit
        self._copies, self._added = np.zeros(0, np.int64), np.zeros(0, EVIDENCE)
        if self._walked:
            self._read_log(low)

    def _read_log(self, low: int) -> None:
        """The copies of slots that may be read again, and the messages that get units in the start."""
        start, copies, added = self._start, [self._copies], [self._added]
        since = start.read_time if start.dispatch_from < 0 else 0
        for rows in rows_since(self._segments, low, start.log_end, since):
            copies.append(_digest(rows[rows["kind"] == FIRED]))
            if start.dispatch_from >= 0:
                is_added = (rows["kind"] == TIMED) & (rows["phy_offset"] >= start.dispatch_from)
                added.append(rows[is_added & (rows["queue_offset"] >= start.high)])
        self._copies, self._added = np.sort(np.concatenate(copies)), np.concatenate(added)

    def count(self, thorough: bool) -> TimerCounts:
        """Return how many messages are lost, and how many come twice. ``thorough``: also the records of messages that come once
        are read."""
        kept, marks, self._bytes = [np.zeros(0, KEPT)], [np.zeros(0, np.int64)], 0
        for rows, comes in self._rows(thorough):
            marks.append(rows["key"][rows["delete"] > 0])
            kept.append(self._kept(rows, comes, thorough))
        if self._bytes > self._left:
            return TimerCounts(UNCOUNTED, UNCOUNTED)
        rows_kept = np.concatenate(kept)
        rows_kept = rows_kept[~np.isin(rows_kept["key"], np.concatenate(marks))]
        lost, again = self._sum(rows_kept)
        if not self._walked:
            # Copies may lie in what was not read.
            lost, again = (UNCOUNTED if number else 0 for number in (lost, again))
        return TimerCounts(lost, again)

    def _rows(self, thorough: bool) -> Iterator[tuple[Rows, Int64s]]:
        """Yield rows of EVIDENCE of timer messages that matter, and how often each comes."""
        start = self._start
        for file in self._queue:
            first = file.start // UNIT_SIZE
            low, high = max(start.low, first) - first, min(start.high, first + file.size // UNIT_SIZE) - first
            if low >= high:
                continue
            units = file.data[low * UNIT_SIZE : high * UNIT_SIZE].view(UNIT)
            offsets, sizes = units["phy_offset"].astype(np.int64), units["size"].astype(np.int64)
            numbers = first + low + np.arange(len(units))
            led = self._wheel.units(int(offsets.min()), int(offsets.max())).of_records(offsets, sizes)
            known, slot, reads = led.at(offsets)
            comes = reads + (numbers >= start.goes_on)
            # Nothing is to be asked of what was read, or is read for the first time when its time comes.
            settled = known & (slot < start.read_time) & (comes == 0)
            ahead = (reads == 1) & (comes == 1) & (slot > start.newest) & (not thorough)
            chosen = ~settled & ~ahead & (np.diff(offsets, prepend=-1) > 0)
            self._bytes += int(sizes[chosen].sum())
            if self._bytes > self._left:
                return
            rows = rows_at(self._segments, offsets[chosen], sizes[chosen])
            rows = rows[rows["kind"] == TIMED]
            place = np.flatnonzero(chosen)[np.searchsorted(offsets[chosen], rows["phy_offset"])]
            early = (reads[place] > 0) & (slot[place] <= start.newest)
            self.rolls = self.rolls or bool((early & (rows["due"] > start.newest)).any())
            yield rows, comes[place]
        yield self._added, np.ones(len(self._added), np.int64)

    def _kept(self, rows: Rows, comes: Int64s, thorough: bool) -> npt.NDArray[np.void]:
        """Return those rows, no marks among them, whose messages may be lost or come again."""
        start, digests = self._start, _digest(rows)
        past = rows["due"] < start.read_time
        before = past & (rows["queue_offset"] < start.known)
        copied = np.isin(digests, self._copies)
        chosen = (rows["delete"] == 0) & ~(past & (comes == 0))
        chosen &= (comes != 1) | before | copied | (rows["rolls"] > 0) | thorough
        kept = np.zeros(int(np.count_nonzero(chosen)), KEPT)
        kept["digest"], kept["rolls"], kept["key"] = digests[chosen], rows["rolls"][chosen], rows["key"][chosen]
        kept["comes"], kept["came"] = comes[chosen], before[chosen]
        return kept

    def _sum(self, kept: npt.NDArray[np.void]) -> tuple[int, int]:
        """Return how many messages of rows of KEPT are lost, and how many deliveries are too many. All rolls of a message have
        one digest."""
        if not len(kept):
            return 0, 0
        kept = kept[np.lexsort((kept["rolls"], kept["digest"]))]
        begins = np.flatnonzero(np.diff(kept["digest"], prepend=kept["digest"][0] - 1))
        comes = np.add.reduceat(kept["comes"], begins)
        came = np.add.reduceat(kept["came"], begins)
        digests = kept["digest"][begins]
        came += np.searchsorted(self._copies, digests, "right") - np.searchsorted(self._copies, digests)
        # Two that were sent alike are two messages: the most that have one number of rolls.
        runs = np.flatnonzero(
            (np.diff(kept["digest"], prepend=digests[0] - 1) != 0) | (np.diff(kept["rolls"], prepend=-1) != 0)
        )
        sent = np.maximum.reduceat(np.diff(runs, append=len(kept)), np.searchsorted(runs, begins))
        surplus = comes + came - sent
        return int(np.maximum(-surplus, 0).sum()), int(np.minimum(np.maximum(surplus, 0), comes).sum())


def _digest(rows: Rows) -> Int64s:
    """Return one number for both digests."""
    digest: Int64s = rows["digest"] * np.int64(1_000_003) ^ rows["digest2"]
    return digest
