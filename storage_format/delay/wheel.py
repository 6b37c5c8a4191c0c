"""The timer wheel of a broker after a start, and evidence of delayed messages from single records of a mapped store."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, PASSED_OVER, Int64s, Rows, read_evidence, unit_fates
from rocketmq_reindex.storage_format.delay.settings import PRECISIONS_MS, TimerSettings
from rocketmq_reindex.storage_format.delay.timer_layout import (
    LOG_UNIT,
    SLOT,
    WHEEL_SIZE,
    WHEEL_SLOTS,
    TimerCheckpoint,
    is_unit,
)
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import STORE_TIME, TOTAL, RecordArrays, Stretch, check_record, new_record
from rocketmq_reindex.storage_format.record.state import MessageArrays

# ------------------------------------------------------------------------------------------------------------------------ wheel
# A broker's wheel after a start: which units of ``timerlog`` it will read, and which it has read.
#
# Mirrors ``TimerMessageStore.recover``, ``recoverAndRevise`` and ``dequeue``, ``TimerWheel.checkPhyPos`` (5.3.3 to 5.5.1).

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
_UNIT: Final = LOG_UNIT.itemsize


class LogFile(Protocol):
    """A file of the commitlog, of a queue or of ``timerlog``: ``start`` is the offset that its name says."""

    @property
    def start(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def lead(self) -> int: ...

    @property
    def data(self) -> Bytes: ...


@dataclass(frozen=True)
class Units:
    """Units of ``timerlog``, ascending by ``phy_offset``, int64 (n,): where their records lie.

    ``slot``, int64 (n,), is the time of each one's slot, in milliseconds since 1970; ``reads``, int64 (n,), how many slots that
    are still to be read lead to it: 0 or 1, but in files that do not fit each other. ``size``, int64 (n,): the bytes that a
    broker reads for it.
    """

    phy_offset: Longs
    slot: Longs
    reads: Longs
    size: Longs

    def of_records(self, offsets: Longs, sizes: Longs) -> "Units":
        """Return the units that are large enough for the records of these ``sizes`` at ``offsets``, both int64 (n,): a broker
        reads no record through another one (``TimerMessageStore.getMessageByCommitOffset``)."""
        order = np.argsort(offsets, kind="stable")
        place = np.minimum(np.searchsorted(offsets[order], self.phy_offset), len(offsets) - 1)
        found = order[place]
        enough = (offsets[found] != self.phy_offset) | (self.size >= sizes[found])
        return Units(self.phy_offset[enough], self.slot[enough], self.reads[enough], self.size[enough])

    def at(self, offsets: Longs) -> tuple[npt.NDArray[np.bool_], Longs, Longs]:
        """Return of each record at ``offsets``: whether a unit names it, the latest slot of one, and how often it will be
        read."""
        low, high = np.searchsorted(self.phy_offset, offsets), np.searchsorted(self.phy_offset, offsets, "right")
        known = high > low
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.reads)))
        slot = np.full(len(offsets), -1, np.int64)
        # Units of one record are ordered by slot.
        slot[known] = self.slot[high[known] - 1]
        return known, slot, total[high] - total[low]


class Wheel:
    """The wheel of one start, whose ``timerlog`` ends at ``end`` (``broker_start.delayed.log_end``).

    ``wheel`` are the bytes of ``timerwheel``, None where there is none; ``step`` is ``timerPrecisionMs``.
    """

    def __init__(self, wheel: Bytes | None, log: Sequence[LogFile], check: TimerCheckpoint, end: int, step: int) -> None:
        self._log = [file for file in log if file.start < end]
        self._end, self._step = end, step
        self._times, self._lasts = np.full(WHEEL_SLOTS, -1, np.int64), np.full(WHEEL_SLOTS, -1, np.int64)
        firsts = self._lasts.copy()
        if wheel is not None and len(wheel) == WHEEL_SIZE:
            slots = wheel.view(SLOT)
            self._times[:], self._lasts[:], firsts[:] = slots["time"], slots["last_pos"], slots["first_pos"]
        if self._log:
            self._link(max(0, check.log_flushed - self._log[-1].size))
        # A slot of zeros is none: its time is long over.
        ahead = (self._times > 0) & (self._times * step >= check.read_time)
        beyond = ahead & (self._lasts > end)
        if beyond.any() and int(firsts[beyond].min()) < end:
            self._link(int(firsts[beyond].min()))
        self._ranges: list[tuple[int, int]] = []
        self._reads = self._followed(self._lasts[ahead])

    def _link(self, begin: int) -> None:
        """Link the slots of all units from the file of position ``begin`` on: the last unit of a slot wins."""
        number = max((i for i, file in enumerate(self._log) if begin >= file.start), default=0)
        for file in self._log[number:]:
            units = self._units(file)
            good = is_unit(units)
            places = file.start + np.flatnonzero(good) * _UNIT
            slots = _slots(units[good], self._step)
            index = slots % WHEEL_SLOTS
            self._times[index], self._lasts[index] = slots, places

    def _units(self, file: LogFile) -> npt.NDArray[np.void]:
        count = min(file.size, self._end - file.start) // _UNIT
        return file.data[: count * _UNIT].view(LOG_UNIT)

    def _followed(self, heads: Longs) -> list[npt.NDArray[np.uint8]]:
        """Return how often each unit is read: a slot names its last one, and each the one before it."""
        reads_by_file, positions = list[npt.NDArray[np.uint8]](), heads
        for file in reversed(self._log):
            units = self._units(file)
            reads, crossing = np.zeros(len(units), np.uint8), np.empty(len(positions) + 1, np.int64)
            in_file = positions >= file.start
            previous = units["prev_pos"].astype(np.int64)
            count = _follow(previous, file.start, positions[in_file], reads, crossing)
            positions = np.concatenate((positions[~in_file], crossing[:count]))
            phy = units["phy_offset"]
            self._ranges.insert(0, (int(phy.min()), int(phy.max())) if len(units) else (0, -1))
            reads_by_file.insert(0, reads)
        return reads_by_file

    def units(self, low: int, high: int) -> Units:
        """Return the units of records at physical offsets ``low`` to ``high``, both included."""
        parts = [np.zeros((4, 0), np.int64)]
        for file, reads, (first, last) in zip(self._log, self._reads, self._ranges, strict=True):
            if first > high or last < low:
                continue
            units = self._units(file)
            in_span = (units["size"] == _UNIT) & (units["phy_offset"] >= low) & (units["phy_offset"] <= high)
            chosen = units[in_span]
            slots = _slots(chosen, self._step) * self._step
            parts.append(np.stack((chosen["phy_offset"], slots, reads[in_span], chosen["record_size"])).astype(np.int64))
        columns = np.concatenate(parts, axis=1)
        return Units(*columns[:, np.lexsort((columns[1], columns[0]))])

    def to_read(self) -> Iterator[Rows]:
        """Yield the units that are still to be read, rows of LOG_UNIT, some for each file of ``timerlog``."""
        for file, reads in zip(self._log, self._reads, strict=True):
            yield self._units(file)[reads > 0]


def slot_step(wheel: Bytes | None, time: int) -> int:
    """Return ``timerPrecisionMs`` as a wheel shows it: slots are numbered from 1970, and the newest is days from ``time`` at
    most.

    ``time`` is in milliseconds; the default where nothing shows it.
    """
    newest = 0 if wheel is None or len(wheel) != WHEEL_SIZE else int(wheel.view(SLOT)["time"].max())
    if newest <= 0 or time <= 0:
        return TimerSettings.precision_ms
    return min(PRECISIONS_MS, key=lambda step: abs(newest * step - time))


def _slots(units: npt.NDArray[np.void], step: int) -> Longs:
    """Return the number of each one's slot since 1970."""
    slots: Longs = (units["written"].astype(np.int64) + units["delayed"]) // step
    return slots


@jit
def _follow(previous: Longs, start: int, heads: Longs, reads: npt.NDArray[np.uint8], crossing: Longs) -> int:
    """Follow the chains of one file down to its begin: ``reads`` counts, ``crossing`` gets where they go on before it."""
    for n in range(len(heads)):
        place = heads[n] - start
        if place % _UNIT == 0 and place // _UNIT < len(previous):
            reads[place // _UNIT] += 1
    count = 0
    for k in range(len(previous) - 1, -1, -1):
        if reads[k] == 0:
            continue
        before = previous[k]
        if before >= start:
            place = before - start
            if place < k * _UNIT and place % _UNIT == 0:
                reads[place // _UNIT] += reads[k]
        elif before >= 0:
            for _ in range(reads[k]):
                if count < len(crossing):
                    crossing[count] = before
                    count += 1
    return count


# --------------------------------------------------------------------------------------------------------------------- log rows
# Evidence of delayed messages out of single records, or a stretch of the log, of a store whose files are mapped.

_ROWS: Final = 1 << 16


@jit
def entry_at(data: Bytes, at: int, lead: int) -> int:
    """Return where to go on at ``data[at]``: a record's place is that of its entry, ``lead`` bytes before it."""
    if not lead or at < lead or at + r.FILLER_MIN > len(data):
        return at
    magic = int32_at(data, at + r.AT_MAGIC)
    return at - lead if magic == r.MAGIC_V1 or magic == r.MAGIC_V2 else at


@jit
def _sound(stretch: Stretch, offsets: Int64s, sizes: Int64s, out: npt.NDArray[np.bool_], record: RecordArrays) -> None:
    for n in range(len(offsets)):
        # In a log of DLedger units name the record, behind the head of its entry.
        code = check_record(stretch, offsets[n] - stretch.base - stretch.lead, r.CRC_NONE, record)
        out[n] = code == r.GOOD and record.rec[TOTAL] - stretch.lead == sizes[n]


@jit
def _walk(
    stretch: Stretch, at: int, since: int, offsets: Int64s, sizes: Int64s, record: RecordArrays
) -> tuple[int, int]:  # fmt: skip
    """Return places and sizes of the records from ``data[at]`` on that were stored at ``since`` or later.

    Return where to go on, -1 at the end, and how many there are.
    """
    count, rec = 0, record.rec
    at = entry_at(stretch.data, at, stretch.lead)
    while at < stretch.filled:
        code = check_record(stretch, at, r.CRC_NONE, record)
        if code != r.GOOD:
            return -1, count
        if rec[STORE_TIME] >= since:
            if count == len(offsets):
                return at, count
            offsets[count], sizes[count] = stretch.base + at + stretch.lead, rec[TOTAL] - stretch.lead
            count += 1
        at += rec[TOTAL]
    return -1, count


def rows_at(segments: Sequence[LogFile], offsets: Int64s, sizes: Int64s) -> Rows:
    """Return rows of EVIDENCE of the records at ``offsets``, ascending; what is no sound record of its size there has none."""
    parts = [np.zeros(0, EVIDENCE)]
    for segment in segments:
        low, high = np.searchsorted(offsets, (segment.start, segment.start + segment.size))
        for begin in range(int(low), int(high), _ROWS):
            part = slice(begin, min(begin + _ROWS, int(high)))
            data, sound = segment.data, np.zeros(part.stop - part.start, np.bool_)
            _sound(_stretch(segment), offsets[part], sizes[part], sound, new_record())
            parts.append(_rows(data, segment.start, offsets[part][sound], sizes[part][sound]))
    return np.concatenate(parts)


_APART: Final = 1 << 20
"""Records that lie further apart in the log are read apart from each other."""
_PIECE: Final = 1 << 23
"""bytes in which records begin that are read at a time"""
_LARGEST: Final = 1 << 26
"""bytes of a record that is looked at; no broker has room for that many (``maxMessageSize``)"""


def sizes_to_read(units: Rows, end: int) -> Longs:
    """Return how many bytes of a log up to ``end`` are looked at for each of some ``units``, int64 (n,)."""
    room = end - np.minimum(units["phy_offset"].astype(np.int64), end)
    return np.clip(units["record_size"].astype(np.int64), 0, np.clip(room, 0, _LARGEST))


def fates_in(
    units: Rows, segments: Sequence[tuple[int, int]], read: Callable[[int, int, int], Bytes], end: int
) -> Int64s:  # fmt: skip
    """Return what a broker does with each of some ``units`` of ``timerlog``, rows of LOG_UNIT (``evidence.unit_fates``).

    Args:
        units: in any order.
        segments: start and size of each one, ascending.
        read: returns bytes, uint8, of the segment of a number, by the offset of the first one in it, and their count.
        end: where the log ends.
    """
    fates = np.full(len(units), PASSED_OVER, np.int64)
    order = np.argsort(units["phy_offset"], kind="stable")
    begins = units["phy_offset"][order].astype(np.int64)
    sizes = sizes_to_read(units[order], end)
    for number, (start, size) in enumerate(segments):
        stop = min(start + size, end)
        first, last = (int(place) for place in np.searchsorted(begins, (start, stop)))
        cuts = np.append(first + 1 + np.flatnonzero(np.diff(begins[first:last]) > _APART), last)
        while first < last:
            after = min(int(cuts[np.searchsorted(cuts, first, "right")]), int(np.searchsorted(begins, begins[first] + _PIECE)))
            low, high = int(begins[first]), min(stop, int((begins[first:after] + sizes[first:after]).max()))
            rows = order[first:after]
            fates[rows] = unit_fates(units[rows], read(number, low - start, high - low), low)
            first = after
    return fates


def rows_since(segments: Sequence[LogFile], low: int, high: int, since: int) -> Iterator[Rows]:
    """Yield rows of EVIDENCE of the records at offsets ``low`` to ``high``, without it, that were stored at ``since`` or later.

    ``since`` is in milliseconds. A segment is read up to its first damage.
    """
    offsets, sizes = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
    for segment in segments:
        at, limit = max(0, low - segment.start), min(segment.size, high - segment.start)
        while 0 <= at < limit:
            at, count = _walk(_stretch(segment)._replace(filled=limit), at, since, offsets, sizes, new_record())
            yield _rows(segment.data, segment.start, offsets[:count], sizes[:count])


def begin_of(segments: Sequence[LogFile], since: int) -> int:
    """Return the offset of a segment from which on all records lie that were stored at ``since`` or later, in milliseconds."""
    return segments[max(0, bisect_left(segments, since, key=_first_time) - 1)].start if segments else 0


def _first_time(segment: LogFile) -> int:
    """Return when the first record of a segment was stored; 0 where none stands there."""
    record = new_record()
    first = np.array([segment.start + segment.lead], np.int64)
    _sound(_stretch(segment), first, np.zeros(1, np.int64), np.zeros(1, np.bool_), record)
    return int(record.rec[STORE_TIME])


def _rows(data: Bytes, base: int, offsets: Int64s, sizes: Int64s) -> Rows:
    unknown, messages = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int32)
    return read_evidence(data, base, MessageArrays(offsets, sizes.astype(np.int32), unknown, unknown, messages))


def _stretch(segment: LogFile) -> Stretch:
    end = segment.start + len(segment.data)
    return Stretch(segment.data, len(segment.data), segment.start, end, end, segment.lead)
