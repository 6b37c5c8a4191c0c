"""A broker's timer files, so that it goes on with exactly the timer messages that are pending.

The pending ones lie between others that were delivered. So it is not enough to say from which queue offset a broker takes
messages: each pending one becomes a unit of ``timerlog``, linked to its slot of ``timerwheel``, and ``config/timercheck`` says
that the whole queue was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT32_MAX, INT64_MAX
from rocketmq_reindex.storage_format.timer.check import SIZE, TimerCheckpoint
from rocketmq_reindex.storage_format.timer.layout import (
    BLANK_SIZE,
    LOG_LAYOUT,
    LOG_UNIT,
    MAGIC_BLANK,
    MAGIC_DEFAULT,
    SLOT,
    SLOT_LAYOUT,
    WHEEL_SIZE,
    WHEEL_SLOTS,
    units_per_file,
)
from rocketmq_reindex.storage_format.timer.placing import Longs, place
from rocketmq_reindex.storage_format.timer.settings import BLANK_SLOTS, SLOTS_TOTAL, TimerSettings

PENDING: Final = np.dtype(
    [
        ("queue_offset", "<i8"),
        ("phy_offset", "<i8"),
        ("size", "<i4"),
        ("store_time", "<i8"),
        ("due", "<i8"),
        ("topic_hash", "<i4"),
        ("delete", "?"),
    ]
)
"""A timer message: its record and store time, TIMER_OUT_MS, Java's hashCode of REAL_TOPIC, whether it has TIMER_DEL_UNIQKEY"""
_CLOCKS_APART_MS: Final = 3_600_000
"""A broker's clock may be behind the one of the build. What it takes until then gets a slot that is still read."""
_PART_UNITS: Final = 20_000
_PART_SLOTS: Final = 4096


@dataclass(frozen=True)
class QueueEnd:
    """The end of queue 0 of the timer topic: its max offset, and the place and size of the last record of it in the log."""

    queue_offset: int
    phy_offset: int
    size: int


@dataclass(frozen=True)
class TimerFiles:
    """The files, and when the broker has to start at the latest, in milliseconds since 1970.

    Later it passes over messages that were overdue.
    """

    files: tuple[TimerFile, ...]
    start_by: int


@dataclass(frozen=True)
class TimerFile:
    """A file to write: its path in the store, its length, and its bytes as (offset, bytes), ascending, with zeros between."""

    path: tuple[str, ...]
    size: int
    parts: Callable[[], Iterator[tuple[int, bytes]]]


def timer_files(
    pending: npt.NDArray[np.void], end: QueueEnd, read_time: int, settings: TimerSettings | None = None,
    recalled: npt.NDArray[np.bool_] | None = None,
) -> TimerFiles:  # fmt: skip
    """The files with which a broker delivers exactly the messages that are ``pending``: timerlog, timerwheel, timercheck.

    Args:
        pending: rows of PENDING, ascending by queue offset, all below ``end``.
        end: the queue's end; nothing is written for an empty queue.
        read_time: the clock, in milliseconds since 1970. What is due before it is delivered when the broker starts.
        settings: the broker's; with another file size or precision it does not load, or reads wrong slots.
        recalled: bool (n,), the delete marks whose message is pending, and these messages; see ``placing.place``.

    Raises:
        ValueError: an argument is not as described.
        InputError: see ``placing.place``.
    """
    settings = settings or TimerSettings()
    _check(pending, end, read_time, settings)
    if not end.queue_offset:
        return TimerFiles((), INT64_MAX)
    step = settings.precision_ms
    clock = read_time // step * step
    placed = place(pending["due"], pending["store_time"], pending["delete"], clock, settings, recalled)
    rows, times, magics = pending, placed.times, placed.magics
    read_from = placed.first - _CLOCKS_APART_MS // step * step
    if not len(pending) or int(pending["phy_offset"][-1]) != end.phy_offset:
        # A broker goes on behind the record of the last unit (TimerMessageStore.reviseQueueOffset). Nobody reads this slot.
        last = np.array([(end.queue_offset - 1, end.phy_offset, end.size, 0, 0, 0, False)], PENDING)
        rows = np.concatenate((pending, last))
        times, magics = np.append(times, read_from - step), np.append(magics, np.int32(MAGIC_DEFAULT))
    log = _Log(rows, times, magics, clock, settings)
    # It reads the whole log again when it starts, and links the slots itself: a wheel that got lost does no harm.
    check = TimerCheckpoint(read_from, 0, end.queue_offset, end.queue_offset, 0, clock, 0)
    files = (
        *log.files(),
        TimerFile(("timerwheel",), WHEEL_SIZE, partial(_wheel_parts, log.slots())),
        TimerFile(("config", "timercheck"), SIZE, lambda: iter([(0, check.to_bytes())])),
    )
    # TimerMessageStore.recover reads from there at most.
    return TimerFiles(files, placed.first + (SLOTS_TOTAL - BLANK_SLOTS) * step)


def _check(pending: npt.NDArray[np.void], end: QueueEnd, read_time: int, settings: TimerSettings) -> None:
    offsets = pending["queue_offset"]
    if (
        pending.dtype != PENDING
        or end.queue_offset < 0
        or (len(offsets) and (offsets[0] < 0 or offsets[-1] >= end.queue_offset or (np.diff(offsets) <= 0).any()))
        or read_time <= 0
        # A unit tells its time from the clock in a Java int.
        or not 0 < settings.precision_ms <= INT32_MAX // SLOTS_TOTAL
        or units_per_file(settings.log_file_size) <= 0
    ):
        raise ValueError("timer messages that are not in the order of one queue, or no time or size")


class _Log:
    """``timerlog``: the units in the order in which a broker takes messages, each with the one before it in its slot."""

    def __init__(
        self, rows: npt.NDArray[np.void], times: Longs, magics: npt.NDArray[np.int32], written: int, settings: TimerSettings
    ) -> None:
        self._rows, self._times, self._magics, self._written = rows, times, magics, written
        self._file_size, self._per_file = settings.log_file_size, units_per_file(settings.log_file_size)
        number = np.arange(len(rows))
        self._places = number // self._per_file * self._file_size + number % self._per_file * LOG_UNIT.itemsize
        slots = times // settings.precision_ms
        self._order = np.argsort(slots, kind="stable")
        ordered = slots[self._order]
        self._begins = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
        self._slots = ordered[self._begins]
        before = np.roll(self._places[self._order], 1)
        before[self._begins] = -1
        self._before = np.empty_like(before)
        self._before[self._order] = before

    def slots(self) -> npt.NDArray[np.void]:
        """Rows of SLOT, ascending by time."""
        found = np.zeros(len(self._slots), SLOT)
        ends = np.append(self._begins[1:], len(self._order)) - 1
        found["time"] = self._slots
        found["first_pos"] = self._places[self._order[self._begins]]
        found["last_pos"] = self._places[self._order[ends]]
        found["count"] = np.add.reduceat(np.where(self._rows["delete"][self._order], -1, 1), self._begins)
        return found

    def files(self) -> Iterator[TimerFile]:
        """Each file; the last one is not full."""
        for low in range(0, len(self._rows), self._per_file):
            start = low // self._per_file * self._file_size
            high = min(low + self._per_file, len(self._rows))
            yield TimerFile(("timerlog", f"{start:020d}"), self._file_size, partial(self._parts, low, high))

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        for begin in range(low, high, _PART_UNITS):
            part = slice(begin, min(begin + _PART_UNITS, high))
            rows = self._rows[part]
            units = np.zeros(len(rows), LOG_UNIT)
            units["size"], units["magic"] = LOG_UNIT.itemsize, self._magics[part]
            units["prev_pos"] = self._before[part]
            units["written"], units["delayed"] = self._written, self._times[part] - self._written
            units["phy_offset"], units["record_size"] = rows["phy_offset"], rows["size"]
            units["topic_hash"] = rows["topic_hash"]
            yield (begin - low) * LOG_UNIT.itemsize, units.tobytes()
        if high < len(self._rows):
            # TimerLog.append: a blank unit closes the file when the next one begins.
            end = (high - low) * LOG_UNIT.itemsize
            yield end, LOG_LAYOUT.pack(self._file_size - end, 0, MAGIC_BLANK, 0, 0, 0, 0, 0, 0)[:BLANK_SIZE]


def _wheel_parts(slots: npt.NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """The wheel's stretches of _PART_SLOTS that have a slot (``TimerWheel.getSlotIndex``)."""
    indexes = slots["time"].astype(np.int64) % WHEEL_SLOTS
    for part in np.unique(indexes // _PART_SLOTS):
        begin = int(part) * _PART_SLOTS
        held = (indexes >= begin) & (indexes < begin + _PART_SLOTS)
        stretch = np.zeros(min(_PART_SLOTS, WHEEL_SLOTS - begin), SLOT)
        stretch[indexes[held] - begin] = slots[held]
        yield begin * SLOT_LAYOUT.size, stretch.tobytes()
