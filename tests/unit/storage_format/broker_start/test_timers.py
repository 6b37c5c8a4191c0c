"""From where timer messages are taken into the wheel again."""

from __future__ import annotations

import struct

import numpy as np

from rocketmq_reindex.storage_format.broker_start.delayed import TimerOutcome, log_end, timers
from rocketmq_reindex.storage_format.broker_start.loading import QueueOutcome
from rocketmq_reindex.storage_format.broker_start.store import StoreFile
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, TimerCheckpoint
from rocketmq_reindex.storage_format.topics import TIMER_TOPIC

FILE = 52 * 4 + 20
BLANK = (0xBBCCDDEE ^ (1880681586 + 8)) & 0xFFFFFFFF


def queue(low: int, end: int, added: int = 0) -> QueueOutcome:
    return QueueOutcome(TIMER_TOPIC, 0, low, end, 0, added, low, end, 0)


def taken(check: TimerCheckpoint | None, one: QueueOutcome | None, last: int = -1, log: bool = True) -> TimerOutcome:
    found = timers(True, [StoreFile(f"{0:020d}", np.zeros(FILE, np.uint8))] if log else [], check, one, last)
    assert found is not None
    return found


def test_all_is_there() -> None:
    found = taken(TimerCheckpoint(0, 0, 7, 7), queue(2, 10))
    assert (found.kept, found.goes_on, found.end, found.taken_again) == (7, 7, 10, 0)


def test_timerlog_knows_more_than_timercheck() -> None:
    assert taken(TimerCheckpoint(0, 0, 5, 9), queue(0, 10), last=7).goes_on == 8
    behind = taken(TimerCheckpoint(0, 0, 5, 5), queue(0, 10), last=7)
    assert (behind.goes_on, behind.taken_again) == (5, 3)


def test_no_timercheck() -> None:
    """It begins at the queue's first message, whatever timerlog says: the master's offset is 0."""
    found = taken(None, queue(3, 10), last=7)
    assert (found.goes_on, found.taken_again) == (3, 5)
    assert taken(None, queue(3, 10), log=False).taken_again == 7


def test_a_queue_that_is_shorter_for_now() -> None:
    found = taken(TimerCheckpoint(0, 0, 9, 9), queue(0, 10, added=4))
    assert (found.goes_on, found.taken_again) == (6, 3)


def test_a_queue_that_is_gone() -> None:
    """There is no queue yet when it is corrected (``getConsumeQueue``)."""
    assert taken(TimerCheckpoint(0, 0, 9, 9), queue(0, 10, added=10)).goes_on == 9


def test_no_timerlog() -> None:
    assert timers(True, [], TimerCheckpoint(), None, -1) is None


def log_file(start: int, units: int, filler: bool = False) -> StoreFile:
    rows = np.zeros(4, LOG_UNIT)
    rows["size"][:units], rows["magic"][:units] = 52, 3
    rows["phy_offset"][:units] = start + np.arange(units)
    data = np.zeros(FILE, np.uint8)
    data[: 52 * 4] = rows.view(np.uint8)
    if filler:
        data[52 * units + 12 : 52 * units + 16] = np.frombuffer(struct.pack(">I", BLANK), np.uint8)
    return StoreFile(f"{start:020d}", data)


def test_where_timerlog_ends() -> None:
    assert log_end([], 0) == (0, -1, 0)
    assert log_end([log_file(0, 2)], 0) == (104, 1, 0)
    assert log_end([log_file(0, 0)], 0) == (0, -1, 0)
    assert log_end([log_file(0, 3, filler=True), log_file(FILE, 1)], 0) == (FILE + 52, FILE, 0)
    assert log_end([log_file(0, 2), log_file(FILE, 1)], 0) == (104, 1, 0), "it stops where a unit is none"
    assert log_end([log_file(0, 2), log_file(FILE, 1)], 3 * FILE) == (FILE + 52, FILE, 0)
