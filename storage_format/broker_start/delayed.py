"""Delayed and timer messages after a start: where the delivery of each level, and of the wheel, goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start.loading import Prediction, QueueOutcome
from rocketmq_reindex.storage_format.broker_start.other_queue_states import ExtState
from rocketmq_reindex.storage_format.broker_start.store import StoreFile
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, MAGIC_BLANK, TimerCheckpoint, leading_units
from rocketmq_reindex.storage_format.delay.wheel import entry_at
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.extended import is_address
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.topics import SCHEDULE_TOPIC
from rocketmq_reindex.storage_format.versions import START_RULES

# --------------------------------------------------------------------------------------------------------------------- due walk
# A pass over a segment that looks at heads and topics alone: the newest store time, and delayed records by level.

NEXT_SEGMENT: Final = -1
END: Final = -2


@jit
def walk_due(
    data: npt.NDArray[np.uint8],
    at: int,
    limit: int,
    topic: npt.NDArray[np.uint8],
    delays: npt.NDArray[np.int64],
    now: int,
    newest: npt.NDArray[np.int64],
    due: npt.NDArray[np.int64],
    lead: int = 0,
) -> int:
    """Walk the records of a segment in ``data[at:limit]``, which the recovery has accepted; ``lead`` bytes stand in front of
    each.

    ``newest``, int64 (1,), becomes the latest store time in milliseconds. ``due``, int64 (n,), counts for each queue of
    ``topic``, uint8, the records whose store time and delay (``delays``, int64 (n,), milliseconds) are at most ``now``, and
    that get a unit. Returns NEXT_SEGMENT behind a filler or the last byte, END where no record stands.
    """
    at = entry_at(data, at, lead)
    while at + lead + r.FILLER_MIN <= limit:
        if lead and int32_at(data, at) == r.ENTRY_BLANK:
            return NEXT_SEGMENT
        at += lead
        total = np.int64(int32_at(data, at))
        magic = int32_at(data, at + r.AT_MAGIC)
        if magic == r.MAGIC_BLANK:
            return NEXT_SEGMENT
        if (magic != r.MAGIC_V1 and magic != r.MAGIC_V2) or total < r.RECORD_MIN or at + total > limit:
            return END
        flags = int32_at(data, at + r.AT_SYS_FLAG)
        born = r.IPV6_EXTRA if flags & r.FLAG_BORN_HOST_V6 else 0
        hosts = born + (r.IPV6_EXTRA if flags & r.FLAG_STORE_HOST_V6 else 0)
        if total < r.RECORD_MIN + hosts:
            return END
        time = int64_at(data, at + r.AT_STORE_TIMESTAMP + born)
        newest[0] = max(newest[0], time)
        queue = int32_at(data, at + r.AT_QUEUE_ID)
        kind = flags & r.FLAG_TRANSACTION_MASK
        plain = kind == r.TRANSACTION_NONE or kind == r.TRANSACTION_COMMIT
        if plain and queue >= 0 and queue < len(delays) and time + delays[queue] <= now:
            body = max(np.int64(0), np.int64(int32_at(data, at + r.AT_BODY_LENGTH + hosts)))
            name = at + r.HEADER_SIZE + hosts + body
            if magic == r.MAGIC_V1 and name + 1 + len(topic) <= at + total and data[name] == len(topic):
                is_topic = True
                for i in range(len(topic)):
                    is_topic = is_topic and data[name + 1 + i] == topic[i]
                if is_topic:
                    due[queue] += 1
        at += total
    return NEXT_SEGMENT


# ---------------------------------------------------------------------------------------------------------------------- delayed
# Delayed messages after a start: where the delivery of each level goes on (``ScheduleMessageService``).

_NOTHING: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class DelayedOutcome:
    """The messages of one delay level after the start; they lie in queue ``level - 1`` of SCHEDULE_TOPIC_XXXX."""

    level: int
    delay: int
    """milliseconds"""
    kept: int
    """the queue offset in ``config/delayOffset.json``: all below it is delivered; -1 where it has none"""
    begins: int
    """the queue offset from which messages are delivered"""
    begins_least: int
    """from here at worst: up to 4.9 always ``begins``; from 5.0 on the delivery starts while the queue is still filled"""
    end: int
    """the queue's max offset after the start"""
    waiting: int
    """messages from ``begins`` on"""
    due: int
    """those of them whose time has come at the log's newest store time; -1 where they were not counted"""
    again: int
    """messages that are delivered a second time: at most, and those that are due where there is no kept offset"""
    skipped: int
    """messages that were not delivered, lie in the log, and are not reached any more"""
    stuck_at: int = -1
    """the queue offset at which the delivery stops, since its unit in ``consumequeue_ext`` is damaged; -1 for none"""


def kept_offsets(config: Any) -> dict[int, int]:
    """Return the offsets by level in a delayOffset.json (``DelayOffsetSerializeWrapper``); none where it holds none."""
    table = config.get("offsetTable") if isinstance(config, dict) else None
    offsets = dict[int, int]()
    for level, offset in table.items() if isinstance(table, dict) else ():
        text = str(level)
        if text.isascii() and text.isdigit() and isinstance(offset, int) and INT64_MIN <= offset <= INT64_MAX:
            offsets[int(text)] = offset
    return offsets


class DueUnits(NamedTuple):
    """The units of a level in its files."""

    due: int = 0
    """-1 where they were not counted"""
    by_log: int = 0
    """those whose address leads to no unit in ``consumequeue_ext``, so that a broker takes the time of the record"""
    stuck_at: int = -1
    """the first queue offset whose unit in ``consumequeue_ext`` a broker cannot read, and stops at; -1 for none"""


_PAGE: Final = 4096
"""bytes that are read of the log for the time of one record"""


def due_in_files(
    files: Sequence[StoreFile], low: int, high: int, now: int, delay: int, ext: ExtState | None, log: "StoreTimes"
) -> DueUnits:
    """Return the units at queue offsets ``low`` to ``high``, without it, whose tagsCode, the time to deliver, is at most
    ``now``, or later than a message of ``delay`` milliseconds can be due, which a broker takes for an error.

    A tagsCode that is an address is looked up in ``ext``, the queue's files in ``consumequeue_ext`` (None: the broker reads
    none), and else in the log (``ScheduleMessageService.executeOnTimeUp``).
    """
    due = by_log = 0
    for file in files:
        first = file.start // UNIT_SIZE
        begin, end = max(low, first), min(high, first + file.size // UNIT_SIZE)
        if begin >= end:
            continue
        units = file.data[(begin - first) * UNIT_SIZE : (end - first) * UNIT_SIZE].view(UNIT)
        time = units["tags_code"].astype(np.int64)
        rows = np.flatnonzero(is_address(time))
        if len(rows) and ext is not None:
            found = ext.units(time[rows])
            if found.fails.any():
                return DueUnits(-1, by_log, begin + int(rows[np.argmax(found.fails)]))
            time[rows[found.there]] = found.tags_code[found.there]
            rows = rows[is_address(time[rows])]
        if len(rows):
            by_log += len(rows)
            if by_log * _PAGE > log.limit:
                due = -1
            elif due >= 0:
                time[rows] = log.times(units["phy_offset"][rows].astype(np.int64), units["size"][rows].astype(np.int64)) + delay
        if due >= 0:
            due += int(np.count_nonzero((time <= now) | (time > now + delay)))
    return DueUnits(due, by_log)


class StoreTimes(NamedTuple):
    """Reads store times of records in a log that ends at ``end``, if it has to read ``limit`` bytes at most."""

    segments: Sequence[StoreFile]
    end: int
    limit: int

    def times(self, phy_offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the store time of each record, int64 (n,), -1 for one that is not there
        (``CommitLog.pickupStoreTimestamp``)."""
        found = np.full(len(phy_offset), -1, np.int64)
        for segment in self.segments:
            at, stop = phy_offset - segment.start, min(segment.size, self.end - segment.start)
            rows = np.flatnonzero((at >= 0) & (at + np.maximum(size, r.RECORD_MIN) <= stop))
            if len(rows):
                times = np.zeros(len(rows), np.int64)
                _fill_times(segment.data, at[rows], times)
                found[rows] = times
                segment.let_go(0, segment.size)
        return found


@jit
def _fill_times(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> None:
    for k in range(len(at)):
        born = r.IPV6_EXTRA if int32_at(data, at[k] + r.AT_SYS_FLAG) & r.FLAG_BORN_HOST_V6 else 0
        times[k] = int64_at(data, at[k] + r.AT_STORE_TIMESTAMP + born)


def newest_time(segments: Sequence[StoreFile], end: int) -> int:
    """Return the latest store time, in milliseconds, in the last segment with a record in front of offset ``end``; 0 for
    none."""
    newest = np.zeros(1, np.int64)
    for segment in reversed([segment for segment in segments if segment.start < end]):
        walk_due(segment.data, 0, min(segment.size, end - segment.start), _TOPIC, _NOTHING, 0, newest, _NOTHING, segment.lead)
        segment.let_go(0, segment.size)
        if newest[0]:
            break
    return int(newest[0])


def due_in_log(segments: Sequence[StoreFile], low: int, high: int, delays: Sequence[int], now: int) -> list[int]:
    """Return the delayed records at offsets ``low`` to ``high``, without it, that are due at ``now``: a number for each
    level."""
    due, newest = np.zeros(len(delays), np.int64), np.zeros(1, np.int64)
    table = np.array(delays, np.int64)
    for segment in segments:
        at, limit = max(0, low - segment.start), min(segment.size, high - segment.start)
        if at < limit and walk_due(segment.data, at, limit, _TOPIC, table, now, newest, due, segment.lead) == END:
            break
    return [int(count) for count in due]


_TOPIC: Final = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8).copy()


def delayed(
    prediction: Prediction, delays: Sequence[int], kept: Mapping[int, int], due: Mapping[int, DueUnits]
) -> tuple[DelayedOutcome, ...]:
    """Return each delay level with messages, or with an offset of its own.

    ``delays`` are in milliseconds. ``due`` has, by queue, the messages from the kept offset on, or all where there is none,
    that are due. Mirrors ``ScheduleMessageService.correctDelayOffset`` (4.9.8 to 5.5.1).
    """
    queues = {queue.queue: queue for queue in prediction.queues if queue.topic == SCHEDULE_TOPIC}
    outcomes = []
    for level, delay in enumerate(delays, 1):
        queue = queues.get(level - 1)
        if queue is not None or level in kept:
            outcomes.append(
                _level(level, delay, kept.get(level, -1), queue, due.get(level - 1, DueUnits()), prediction.release)
            )
    return tuple(outcomes)


def _level(level: int, delay: int, kept: int, queue: QueueOutcome | None, units: DueUnits, release: str) -> DelayedOutcome:
    low, end = (max(0, queue.min_offset), queue.max_offset) if queue else (0, 0)
    recovered = end - queue.units_added if queue else 0
    kept_or_0 = max(kept, 0)
    begins = min(max(kept_or_0, low), end)
    # DefaultMessageStore.start of 4.9 waits until all is dispatched, and then starts the delivery.
    least = min(begins, max(min(kept_or_0, recovered), low)) if START_RULES[release].delivers_early else begins
    delivered_again = max(0, units.due) if kept < 0 else begins - least
    reached = queue.log_min if queue and queue.log_min >= 0 else low
    skipped = max(0, min(low, end) - max(kept_or_0, reached)) if kept >= 0 else 0
    return DelayedOutcome(
        level, delay, kept, begins, least, end, end - begins, units.due, delivered_again, skipped, units.stuck_at
    )


# ----------------------------------------------------------------------------------------------------------------------- timers
# Timer messages after a start: from where ``TimerMessageStore`` (5.x) takes messages into its wheel again.


@dataclass(frozen=True)
class TimerOutcome:
    """The timer messages after the start; they lie in queue 0 of rmq_sys_wheel_timer."""

    wheel: bool
    """``timerwheel`` is there, and likewise ``log`` for a file in ``timerlog``, ``check`` for ``timercheck``"""
    log: bool
    check: bool
    kept: int
    """the queue offset up to which messages had been taken into the wheel, by ``timercheck`` and ``timerlog``"""
    goes_on: int
    """the queue offset from which messages are taken"""
    end: int
    """the queue's max offset after the start"""
    taken_again: int
    """messages that are taken into the wheel a second time"""
    lost: int = 0
    """messages that were not delivered, lie in the log, and never will be; -1 where they were not counted"""
    again: int = 0
    """deliveries of messages that were delivered before, or come twice; -1 likewise (``delay.waiting``)"""
    passed_over: int = 0
    """units of ``timerlog`` that are still to be read, and lead to nothing that a broker delivers; -1 where this, and what
    follows, was not looked at (``delay.evidence``)"""
    other: int = 0
    """those that lead to other messages, which a broker delivers"""
    stuck: int = 0
    """those at which a broker tries for ever"""
    stuck_at: int = -1
    """the time of the first slot with such a one, in milliseconds since 1970: no later slot is read; -1 for none"""


class LogEnd(NamedTuple):
    """Where ``timerlog`` ends, and place and size in the log of the record that its last unit leads to, -1 and 0 for none."""

    end: int
    place: int = -1
    size: int = 0


def log_end(files: list[StoreFile], flushed: int) -> LogEnd:
    """Return where ``timerlog`` ends by ``TimerMessageStore.recoverAndRevise``."""
    if not files:
        return LogEnd(0)
    begin = max(0, flushed - files[-1].size)
    number = max((i for i, file in enumerate(files) if begin >= file.start), default=0)
    end, last = files[number].start, (-1, 0)
    for file in files[number:]:
        units = file.data[: file.size - file.size % LOG_UNIT.itemsize].view(LOG_UNIT)
        count = leading_units(units)
        end = file.start + count * LOG_UNIT.itemsize
        last = (int(units["phy_offset"][count - 1]), int(units["record_size"][count - 1])) if count else last
        if count < len(units) and int(units["magic"][count]) != MAGIC_BLANK:
            break
    return LogEnd(end, *last)


def timers(
    wheel: bool, log_files: list[StoreFile], check: TimerCheckpoint | None, queue: QueueOutcome | None, last_offset: int
) -> TimerOutcome | None:
    """Return what becomes of timer messages; None for a store that never had one.

    ``last_offset`` is the queue offset of the record that the last unit of ``timerlog`` points to, -1 where there is none.
    Mirrors ``TimerMessageStore.recover`` (5.3.3 to 5.5.1).
    """
    read = check or TimerCheckpoint()
    if queue is None and not log_files and not read.queue_offset:
        return None
    revised = last_offset + 1 if last_offset >= 0 else read.queue_offset
    goes_on = min(revised, read.master_queue_offset)
    end = queue.max_offset if queue else 0
    if queue is not None:
        # At this moment the queue ends where the recovery left it.
        recovered = end - queue.units_added
        if recovered > 0 or queue.min_offset > 0:
            goes_on = max(min(goes_on, max(recovered, 0)), max(queue.min_offset, 0))
    known = max(read.queue_offset, revised) if check is not None or log_files else end
    delivered_again = max(0, min(known, end) - goes_on)
    return TimerOutcome(wheel, bool(log_files), check is not None, known, goes_on, end, delivered_again)
