"""A broker's timer files, so that it goes on with exactly the timer messages that are pending."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay import timer_layout
from rocketmq_reindex.storage_format.delay.settings import BLANK_SLOTS, SLOTS_TOTAL, TimerSettings
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX

# ---------------------------------------------------------------------------------------------------------------------- placing
# Into which slot of the wheel a timer message goes (``TimerMessageStore.doEnqueue``), by the broker's clock.

OVERDUE_PER_SLOT: Final = 100_000
"""A broker makes an object of each unit of a slot before it delivers the first."""
OVERDUE_SLOTS_MAX: Final = 6 * 24 * 3600
"""They lie in front of the clock, and a broker reads no slot that is SLOTS_TOTAL behind it."""
OVERDUE_SLOTS: Final = 2 * 24 * 3600
"""Of messages without marks at most: each slot takes one off the time in which the broker has to start."""

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Placed:
    """Where messages lie in the wheel, in their order, and from where a broker reads its slots."""

    times: Longs
    """when each one's slot is read, in milliseconds since 1970"""
    magics: npt.NDArray[np.int32]
    first: int
    """the time of the first slot, or the clock where none is before it"""


def place(
    due: Longs, stored: Longs, deletes: Flags, clock: int, settings: TimerSettings, recalled: Flags | None = None
) -> Placed:
    """Return place messages by the times at which they are ``due`` and were ``stored``; ``clock`` is a multiple of the
    precision.

    A broker lets a message roll that is due beyond its window, so that its record is not deleted before; by default a record
    lives for one window and a half (``fileReservedTime``). Only what is due later than its record lives rolls here, and when
    the broker would have let it: a mark may get lost on that way. All others go to the slot in which they are due.
    Marks and the messages that they cancel (``recalled``, bool (n,)) do not roll, if the wheel reaches as far: they would be
    taken once more one by one, and where the broker starts after they were due it delivers what it takes.
    What is overdue gets slots right in front of the clock, so that a start within days finds it: one for each step in which
    something was due, in their order, as in the wheel of the broker that was stopped. A reader may need that order: of popped
    messages the acknowledgement comes before the end of the time in which it was to come (``PopReviveService``).
    Neighbours share a slot where they have no mark and would take more than OVERDUE_SLOTS. A mark (``deletes``) works on the
    messages of its own slot alone. So a step with marks keeps a slot of its own. Raises InputError where these are more than
    OVERDUE_SLOTS_MAX.
    """
    step, window = settings.precision_ms, settings.roll_window
    times, magics = due.copy(), np.full(len(due), timer_layout.MAGIC_DEFAULT, np.int32)
    magics[deletes] |= timer_layout.MAGIC_DELETE
    # A broker takes a message right after it was stored; of a record without a time nothing is known.
    taken = np.where(stored > 0, np.minimum(stored // step * step, clock), clock)
    far = (SLOTS_TOTAL - BLANK_SLOTS) * step
    lives = min(max(settings.reserved_hours * 3_600_000, window), window + window // 2)
    lasts = due - taken < lives if recalled is None else (due - taken < lives) | recalled
    rolled = (due >= clock) & (~lasts | (due - clock >= far))
    magics[rolled] |= timer_layout.MAGIC_ROLL
    # A roll that is nearly all of the way would leave little time for the next one.
    near = due - taken - window < window // step // 3 * step
    ahead = np.where(near, window // step // 2 * step, window)
    times[rolled] = np.maximum(taken + ahead, clock)[rolled]
    overdue = np.flatnonzero(due < clock)
    if not len(overdue):
        return Placed(times, magics, clock)
    ranks = _ranks(due[overdue] // step, deletes[overdue])
    count = int(ranks.max()) + 1
    if count > OVERDUE_SLOTS_MAX:
        raise InputError(
            f"timer messages of {count:,} seconds are overdue and have delete marks: {OVERDUE_SLOTS_MAX:,} at most can be kept"
        )
    first = clock - count * step
    times[overdue] = first + ranks * step
    return Placed(times, magics, first)


def _ranks(steps: Longs, deletes: Flags) -> Longs:
    """Return the number of the new slot of each overdue message, by the step in which it was due."""
    order = np.argsort(steps, kind="stable")
    begins = np.flatnonzero(np.diff(steps[order], prepend=steps[order[0]] - 1))
    lengths = np.diff(begins, append=len(steps))
    marked = np.logical_or.reduceat(deletes[order], begins)
    # Steps without marks share slots, so many each, between two that have some.
    plain = ~marked
    room = max(1, min(OVERDUE_SLOTS, OVERDUE_SLOTS_MAX - 2 * int(np.count_nonzero(marked))))
    share = max(1, -(-int(np.count_nonzero(plain)) // room))
    opens = marked | np.append(True, marked[:-1])
    within = np.arange(len(begins)) - np.maximum.accumulate(np.where(opens, np.arange(len(begins)), 0))
    opens |= plain & (within % share == 0)
    new = np.zeros(len(steps), np.bool_)
    new[begins[opens]] = True
    # A slot without marks is cut where it is long.
    starts = np.flatnonzero(new)
    slot = np.cumsum(new) - 1
    place = np.arange(len(steps)) - starts[slot]
    new |= ~np.repeat(marked, lengths) & (place > 0) & (place % OVERDUE_PER_SLOT == 0)
    ranks = np.empty(len(steps), np.int64)
    ranks[order] = np.cumsum(new) - 1
    return ranks


# ------------------------------------------------------------------------------------------------------------------------ files
# The pending ones lie between others that were delivered. So it is not enough to say from which queue offset a broker takes
# messages: each pending one becomes a unit of ``timerlog``, linked to its slot of ``timerwheel``, and ``config/timercheck``
# says that the whole queue was taken.

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
class TimerQueueEnd:
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
    pending: npt.NDArray[np.void], end: TimerQueueEnd, read_time: int, settings: TimerSettings | None = None,
    recalled: npt.NDArray[np.bool_] | None = None,
) -> TimerFiles:  # fmt: skip
    """Return the files with which a broker delivers exactly the messages that are ``pending``: timerlog, timerwheel,
    timercheck.

    Args:
        pending: rows of PENDING, ascending by queue offset, all below ``end``.
        end: the queue's end; nothing is written for an empty queue.
        read_time: the clock, in milliseconds since 1970. What is due before it is delivered when the broker starts.
        settings: the broker's; with another file size or precision it does not load, or reads wrong slots.
        recalled: bool (n,), the delete marks whose message is pending, and these messages; see ``files.place``.

    Raises:
        ValueError: an argument is not as described.
        InputError: see ``files.place``.
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
        times, magics = np.append(times, read_from - step), np.append(magics, np.int32(timer_layout.MAGIC_DEFAULT))
    log = _Log(rows, times, magics, clock, settings)
    # It reads the whole log again when it starts, and links the slots itself: a wheel that got lost does no harm.
    check = timer_layout.TimerCheckpoint(read_from, 0, end.queue_offset, end.queue_offset, 0, clock, 0)
    files = (
        *log.files(),
        TimerFile(("timerwheel",), timer_layout.WHEEL_SIZE, partial(_wheel_parts, log.slots())),
        TimerFile(("config", "timercheck"), timer_layout.SIZE, lambda: iter([(0, check.to_bytes())])),
    )
    # TimerMessageStore.recover reads from there at most.
    return TimerFiles(files, placed.first + (SLOTS_TOTAL - BLANK_SLOTS) * step)


def _check(pending: npt.NDArray[np.void], end: TimerQueueEnd, read_time: int, settings: TimerSettings) -> None:
    offsets = pending["queue_offset"]
    if (
        pending.dtype != PENDING
        or end.queue_offset < 0
        or (len(offsets) and (offsets[0] < 0 or offsets[-1] >= end.queue_offset or (np.diff(offsets) <= 0).any()))
        or read_time <= 0
        # A unit tells its time from the clock in a Java int.
        or not 0 < settings.precision_ms <= INT32_MAX // SLOTS_TOTAL
        or timer_layout.units_per_file(settings.log_file_size) <= 0
    ):
        raise ValueError("timer messages that are not in the order of one queue, or no time or size")


class _Log:
    """``timerlog``: the units in the order in which a broker takes messages, each with the one before it in its slot."""

    def __init__(
        self, rows: npt.NDArray[np.void], times: Longs, magics: npt.NDArray[np.int32], written: int, settings: TimerSettings
    ) -> None:
        self._rows, self._times, self._magics, self._written = rows, times, magics, written
        self._file_size, self._per_file = settings.log_file_size, timer_layout.units_per_file(settings.log_file_size)
        number = np.arange(len(rows))
        self._places = number // self._per_file * self._file_size + number % self._per_file * timer_layout.LOG_UNIT.itemsize
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
        """Return rows of SLOT, ascending by time."""
        slots = np.zeros(len(self._slots), timer_layout.SLOT)
        ends = np.append(self._begins[1:], len(self._order)) - 1
        slots["time"] = self._slots
        slots["first_pos"] = self._places[self._order[self._begins]]
        slots["last_pos"] = self._places[self._order[ends]]
        slots["count"] = np.add.reduceat(np.where(self._rows["delete"][self._order], -1, 1), self._begins)
        return slots

    def files(self) -> Iterator[TimerFile]:
        """Yield each file; the last one is not full."""
        for low in range(0, len(self._rows), self._per_file):
            start = low // self._per_file * self._file_size
            high = min(low + self._per_file, len(self._rows))
            yield TimerFile(("timerlog", f"{start:020d}"), self._file_size, partial(self._parts, low, high))

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        for begin in range(low, high, _PART_UNITS):
            part = slice(begin, min(begin + _PART_UNITS, high))
            rows = self._rows[part]
            units = np.zeros(len(rows), timer_layout.LOG_UNIT)
            units["size"], units["magic"] = timer_layout.LOG_UNIT.itemsize, self._magics[part]
            units["prev_pos"] = self._before[part]
            units["written"], units["delayed"] = self._written, self._times[part] - self._written
            units["phy_offset"], units["record_size"] = rows["phy_offset"], rows["size"]
            units["topic_hash"] = rows["topic_hash"]
            yield (begin - low) * timer_layout.LOG_UNIT.itemsize, units.tobytes()
        if high < len(self._rows):
            # TimerLog.append: a blank unit closes the file when the next one begins.
            end = (high - low) * timer_layout.LOG_UNIT.itemsize
            yield (
                end,
                timer_layout.LOG_LAYOUT.pack(self._file_size - end, 0, timer_layout.MAGIC_BLANK, 0, 0, 0, 0, 0, 0)[
                    : timer_layout.BLANK_SIZE
                ],
            )


def to_read(data: bytes, read_time: int) -> tuple[int, Longs, npt.NDArray[np.void]]:
    """Return how many units stand at the start of ``data``, a part of a file of ``timerlog``, and of those whose slot is read
    from ``read_time`` (milliseconds since 1970) on their numbers, int64 (n,), and themselves, rows of LOG_UNIT.

    The units end as for ``TimerMessageStore.recoverAndRevise``.
    """
    units = np.frombuffer(data, timer_layout.LOG_UNIT, len(data) // timer_layout.LOG_UNIT.itemsize)
    count = timer_layout.leading_units(units)
    some = units[:count]
    numbers = np.flatnonzero(some["written"].astype(np.int64) + some["delayed"] >= read_time)
    return count, numbers, some[numbers]


def _wheel_parts(slots: npt.NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """Yield the wheel's stretches of _PART_SLOTS that have a slot (``TimerWheel.getSlotIndex``)."""
    indexes = slots["time"].astype(np.int64) % timer_layout.WHEEL_SLOTS
    for part in np.unique(indexes // _PART_SLOTS):
        begin = int(part) * _PART_SLOTS
        held = (indexes >= begin) & (indexes < begin + _PART_SLOTS)
        stretch = np.zeros(min(_PART_SLOTS, timer_layout.WHEEL_SLOTS - begin), timer_layout.SLOT)
        stretch[indexes[held] - begin] = slots[held]
        yield begin * timer_layout.SLOT_LAYOUT.size, stretch.tobytes()
