"""How often each delayed message has been delivered, by the log: the copies in the real topics of what was scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tests.delayed.log import Stored

LEVELS = "SCHEDULE_TOPIC_XXXX"
TIMERS = "rmq_sys_wheel_timer"


class Message(NamedTuple):
    """What is one message to its consumers; a retry of it is another one."""

    key: str
    topic: str
    queue: int
    reconsumed: int


def due(log: Iterable[Stored]) -> Counter[Message]:
    """The messages that a broker took to deliver them later; one that was sent twice counts twice.

    A timer message that rolled on is the same one. Those that have a delete mark are left out, as are the marks.
    """
    found: Counter[Message] = Counter()
    marks: set[str] = set()
    for record in log:
        if record.topic in (LEVELS, TIMERS) and "TIMER_ROLL_TIMES" not in record.properties:
            if "TIMER_DEL_UNIQKEY" in record.properties:
                marks.add(record.properties["TIMER_DEL_UNIQKEY"].partition("+")[2] or record.properties["TIMER_DEL_UNIQKEY"])
            else:
                found[_real(record)] += 1
    return Counter({message: count for message, count in found.items() if message.key not in marks})


def delivered(log: Iterable[Stored]) -> Counter[Message]:
    """The copies of delayed messages in their topics."""
    return Counter(
        Message(record.key, record.topic, record.queue, record.reconsumed)
        for record in log
        if record.properties.get("REAL_TOPIC") == record.topic or "TIMER_DEQUEUE_MS" in record.properties
        if record.topic not in (LEVELS, TIMERS)
    )


def copies(log: Iterable[Stored]) -> set[int]:
    """Where they lie."""
    return {record.offset for record in log if delivered([record])}


def _real(record: Stored) -> Message:
    return Message(record.key, record.properties["REAL_TOPIC"], int(record.properties["REAL_QID"]), record.reconsumed)
