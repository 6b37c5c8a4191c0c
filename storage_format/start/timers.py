"""Timer messages after a start: from where ``TimerMessageStore`` (5.x) takes messages into its wheel again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocketmq_reindex.storage_format.start.prediction import QueueOutcome
from rocketmq_reindex.storage_format.start.store import StoreFile
from rocketmq_reindex.storage_format.timer.check import TimerCheckpoint
from rocketmq_reindex.storage_format.timer.layout import LOG_UNIT, MAGIC_BITS, MAGIC_BLANK


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


def log_end(files: list[StoreFile], flushed: int) -> tuple[int, int]:
    """(where ``timerlog`` ends, physical offset of its last unit's record or -1) by ``TimerMessageStore.recoverAndRevise``."""
    if not files:
        return 0, -1
    begin = max(0, flushed - files[-1].size)
    number = max((i for i, file in enumerate(files) if begin >= file.start), default=0)
    end, last = files[number].start, -1
    for file in files[number:]:
        units = file.data[: file.size - file.size % LOG_UNIT.itemsize].view(LOG_UNIT)
        good = (units["size"] == LOG_UNIT.itemsize) & ((units["magic"] | MAGIC_BITS) == MAGIC_BITS)
        count = len(units) if good.all() else int(np.argmin(good))
        end = file.start + count * LOG_UNIT.itemsize
        last = int(units["phy_offset"][count - 1]) if count else last
        if count < len(units) and int(units["magic"][count]) != MAGIC_BLANK:
            break
    return end, last


def timers(
    wheel: bool, log_files: list[StoreFile], check: TimerCheckpoint | None, queue: QueueOutcome | None, last_offset: int
) -> TimerOutcome | None:
    """What becomes of timer messages; None for a store that never had one.

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
    again = max(0, min(known, end) - goes_on)
    return TimerOutcome(wheel, bool(log_files), check is not None, known, goes_on, end, again)
