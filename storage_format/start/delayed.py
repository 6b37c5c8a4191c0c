"""Delayed messages after a start: where the delivery of each level goes on (``ScheduleMessageService``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.start.due_walk import END, walk_due
from rocketmq_reindex.storage_format.start.prediction import Prediction, QueueOutcome
from rocketmq_reindex.storage_format.start.store import StoreFile

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


def kept_offsets(config: Any) -> dict[int, int]:
    """The offsets by level in a delayOffset.json (``DelayOffsetSerializeWrapper``); none where it holds none."""
    table = config.get("offsetTable") if isinstance(config, dict) else None
    found = dict[int, int]()
    for level, offset in table.items() if isinstance(table, dict) else ():
        text = str(level)
        if text.isascii() and text.isdigit() and isinstance(offset, int) and INT64_MIN <= offset <= INT64_MAX:
            found[int(text)] = offset
    return found


def due_in_files(files: Sequence[StoreFile], low: int, high: int, now: int) -> int:
    """Units at queue offsets ``low`` to ``high``, without it, whose tagsCode, the time to deliver, is at most ``now``."""
    count = 0
    for file in files:
        first = file.start // UNIT_SIZE
        begin, end = max(low, first), min(high, first + file.size // UNIT_SIZE)
        if begin < end:
            units = file.data[(begin - first) * UNIT_SIZE : (end - first) * UNIT_SIZE].view(UNIT)
            count += int(np.count_nonzero(units["tags_code"] <= now))
    return count


def newest_time(segments: Sequence[StoreFile], end: int) -> int:
    """The latest store time, in milliseconds, in the last segment with a record in front of offset ``end``; 0 for none."""
    newest = np.zeros(1, np.int64)
    for segment in reversed([segment for segment in segments if segment.start < end]):
        walk_due(segment.data, 0, min(segment.size, end - segment.start), _TOPIC, _NOTHING, 0, newest, _NOTHING)
        segment.let_go(0, segment.size)
        if newest[0]:
            break
    return int(newest[0])


def due_in_log(segments: Sequence[StoreFile], low: int, high: int, delays: Sequence[int], now: int) -> list[int]:
    """The delayed records at offsets ``low`` to ``high``, without it, that are due at ``now``: a number for each level."""
    due, newest = np.zeros(len(delays), np.int64), np.zeros(1, np.int64)
    table = np.array(delays, np.int64)
    for segment in segments:
        at, limit = max(0, low - segment.start), min(segment.size, high - segment.start)
        if at < limit and walk_due(segment.data, at, limit, _TOPIC, table, now, newest, due) == END:
            break
    return [int(count) for count in due]


_TOPIC: Final = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8).copy()


def delayed(
    prediction: Prediction, delays: Sequence[int], kept: Mapping[int, int], due: Mapping[int, int]
) -> tuple[DelayedOutcome, ...]:
    """Each delay level with messages, or with an offset of its own.

    ``delays`` are in milliseconds. ``due`` has, by queue, the messages from the kept offset on, or all where there is none,
    that are due; -1 where they were not counted. Mirrors ``ScheduleMessageService.correctDelayOffset`` (4.9.8 to 5.5.1).
    """
    queues = {queue.queue: queue for queue in prediction.queues if queue.topic == SCHEDULE_TOPIC}
    found = []
    for level, delay in enumerate(delays, 1):
        queue = queues.get(level - 1)
        if queue is not None or level in kept:
            found.append(_level(level, delay, kept.get(level, -1), queue, due.get(level - 1, 0), prediction.release))
    return tuple(found)


def _level(level: int, delay: int, kept: int, queue: QueueOutcome | None, due: int, release: str) -> DelayedOutcome:
    low, end = (max(0, queue.min_offset), queue.max_offset) if queue else (0, 0)
    recovered = end - queue.units_added if queue else 0
    asked = max(kept, 0)
    begins = min(max(asked, low), end)
    # DefaultMessageStore.start of 4.9 waits until all is dispatched, and then starts the delivery.
    least = begins if release.startswith("4.") else min(begins, max(min(asked, recovered), low))
    again = max(0, due) if kept < 0 else begins - least
    reached = queue.log_min if queue and queue.log_min >= 0 else low
    skipped = max(0, min(low, end) - max(asked, reached)) if kept >= 0 else 0
    return DelayedOutcome(level, delay, kept, begins, least, end, end - begins, due, again, skipped)
