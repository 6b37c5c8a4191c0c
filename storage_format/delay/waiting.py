"""Which timer messages a start loses, and which it delivers a second time: what it will read, beside what the log has.

A message is lost where nothing leads to it any more, no copy of it lies in the log, and it was not due when the broker had read
its slots last. It comes again where more leads to it than has to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, FIRED, TIMED, Int64s, Rows
from rocketmq_reindex.storage_format.delay.log_rows import begin_of, rows_at, rows_since
from rocketmq_reindex.storage_format.delay.wheel import LogFile, Wheel
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE

Bools = npt.NDArray[np.bool_]
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
    """Count. ``queue`` are the files of the ConsumeQueue; at most ``limit`` bytes of the log are read for each of two steps.

    Cancelled messages are in neither number, nor are the marks that cancel them.
    """
    work = _Count(start, wheel, queue, segments, limit)
    found = work.count(False)
    # A message that rolled on has a record for each roll: another one of them may come.
    return work.count(True) if found.lost > 0 or work.rolls else found


class _Count:
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
                some = (rows["kind"] == TIMED) & (rows["phy_offset"] >= start.dispatch_from)
                added.append(rows[some & (rows["queue_offset"] >= start.high)])
        self._copies, self._added = np.sort(np.concatenate(copies)), np.concatenate(added)

    def count(self, thorough: bool) -> TimerCounts:
        """``thorough``: also the records of messages that come once are read."""
        kept, marks, self._bytes = [np.zeros(0, KEPT)], [np.zeros(0, np.int64)], 0
        for rows, comes in self._rows(thorough):
            marks.append(rows["key"][rows["delete"] > 0])
            kept.append(self._kept(rows, comes, thorough))
        if self._bytes > self._left:
            return TimerCounts(UNCOUNTED, UNCOUNTED)
        found = np.concatenate(kept)
        found = found[~np.isin(found["key"], np.concatenate(marks))]
        lost, again = self._sum(found)
        if not self._walked:
            # Copies may lie in what was not read.
            lost, again = (UNCOUNTED if number else 0 for number in (lost, again))
        return TimerCounts(lost, again)

    def _rows(self, thorough: bool) -> Iterator[tuple[Rows, Int64s]]:
        """Rows of EVIDENCE of timer messages that matter, and how often each comes."""
        start = self._start
        for file in self._queue:
            first = file.start // UNIT_SIZE
            low, high = max(start.low, first) - first, min(start.high, first + file.size // UNIT_SIZE) - first
            if low >= high:
                continue
            units = file.data[low * UNIT_SIZE : high * UNIT_SIZE].view(UNIT)
            offsets, sizes = units["phy_offset"].astype(np.int64), units["size"].astype(np.int64)
            numbers = first + low + np.arange(len(units))
            known, slot, reads = self._wheel.units(int(offsets.min()), int(offsets.max())).at(offsets)
            comes = reads + (numbers >= start.goes_on)
            # Nothing is to be asked of what was read, or is read for the first time when its time comes.
            done = known & (slot < start.read_time) & (comes == 0)
            ahead = (reads == 1) & (comes == 1) & (slot > start.newest) & (not thorough)
            some = ~done & ~ahead & (np.diff(offsets, prepend=-1) > 0)
            self._bytes += int(sizes[some].sum())
            if self._bytes > self._left:
                return
            rows = rows_at(self._segments, offsets[some], sizes[some])
            rows = rows[rows["kind"] == TIMED]
            place = np.flatnonzero(some)[np.searchsorted(offsets[some], rows["phy_offset"])]
            early = (reads[place] > 0) & (slot[place] <= start.newest)
            self.rolls = self.rolls or bool((early & (rows["due"] > start.newest)).any())
            yield rows, comes[place]
        yield self._added, np.ones(len(self._added), np.int64)

    def _kept(self, rows: Rows, comes: Int64s, thorough: bool) -> npt.NDArray[np.void]:
        """Of rows that are no marks, those that may be lost or come again."""
        start, digests = self._start, _digest(rows)
        past = rows["due"] < start.read_time
        before = past & (rows["queue_offset"] < start.known)
        copied = np.isin(digests, self._copies)
        some = (rows["delete"] == 0) & ~(past & (comes == 0))
        some &= (comes != 1) | before | copied | (rows["rolls"] > 0) | thorough
        found = np.zeros(int(np.count_nonzero(some)), KEPT)
        found["digest"], found["rolls"], found["key"] = digests[some], rows["rolls"][some], rows["key"][some]
        found["comes"], found["came"] = comes[some], before[some]
        return found

    def _sum(self, found: npt.NDArray[np.void]) -> tuple[int, int]:
        """Messages lost, and deliveries too many, of rows of KEPT: all rolls of a message have one digest."""
        if not len(found):
            return 0, 0
        found = found[np.lexsort((found["rolls"], found["digest"]))]
        begins = np.flatnonzero(np.diff(found["digest"], prepend=found["digest"][0] - 1))
        comes = np.add.reduceat(found["comes"], begins)
        came = np.add.reduceat(found["came"], begins)
        digests = found["digest"][begins]
        came += np.searchsorted(self._copies, digests, "right") - np.searchsorted(self._copies, digests)
        # Two that were sent alike are two messages: the most that have one number of rolls.
        runs = np.flatnonzero(
            (np.diff(found["digest"], prepend=digests[0] - 1) != 0) | (np.diff(found["rolls"], prepend=-1) != 0)
        )
        sent = np.maximum.reduceat(np.diff(runs, append=len(found)), np.searchsorted(runs, begins))
        more = comes + came - sent
        return int(np.maximum(-more, 0).sum()), int(np.minimum(np.maximum(more, 0), comes).sum())


def _digest(rows: Rows) -> Int64s:
    """One number for both digests."""
    found: Int64s = rows["digest"] * np.int64(1_000_003) ^ rows["digest2"]
    return found
