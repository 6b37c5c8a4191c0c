"""How often each delayed message has been delivered, by the log: the copies in the real topics of what was scheduled.

And what a broker's consumers have had, beside that of another broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tests.delayed.cases import GROUP, POPPED, POPPING, RETRIES, SOLD, TOPICS
from tests.delayed.log import Stored

LEVELS = "SCHEDULE_TOPIC_XXXX"
TIMERS = "rmq_sys_wheel_timer"
HALVES, OPS, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION, COMMITTED = 12, 8
"""Bits of SYSFLAG. A committed message keeps the REAL_TOPIC of its half message."""
GROUPS = {GROUP: ("T0", RETRIES), POPPING: (POPPED,)}
"""Which topics a group of a mixed case consumes"""
PULLED = (*(f"T{number}" for number in range(TOPICS)), SOLD, POPPED)


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
        if record.topic not in (LEVELS, TIMERS) and not record.sysflag & TRANSACTION
    )


def copies(log: Iterable[Stored]) -> set[int]:
    """Where they lie."""
    return {record.offset for record in log if delivered([record])}


def _real(record: Stored) -> Message:
    return Message(record.key, record.properties["REAL_TOPIC"], int(record.properties["REAL_QID"]), record.reconsumed)


def pending_halves(log: Iterable[Stored]) -> set[int]:
    """Queue offsets of half messages that their producer has still to decide, by their newest copies."""
    newest: dict[str, int] = {}
    settled: set[int] = set()
    for record in log:
        if record.topic == HALVES:
            newest[record.key] = record.queue_offset
        elif record.topic == OPS:
            settled |= {int(word) for word in record.body.split(b",") if word}
        elif record.topic == GIVEN_UP and record.key in newest:
            settled.add(newest[record.key])
    return set(newest.values()) - settled


@dataclass(frozen=True)
class Told:
    """What a broker's last log has, and how often its consumers were done with each (group, UNIQ_KEY).

    ``pulled`` has the physical offsets that a consumer is given who pulls the whole queues of PULLED.
    """

    log: list[Stored]
    done: Counter[tuple[str, str]]
    pulled: set[int]


def compare(first: Told, restored: Told, control: Told) -> tuple[list[str], list[str]]:
    """What a restored store lost, and what it delivered twice that the broker's own store (``control``) did not repeat.

    ``first`` is what was so before.
    """
    lost, twice = list[str](), list[str]()
    _waiting(first.log, restored.log, control.log, lost, twice)
    _transactions(first.log, restored.log, control.log, lost, twice)
    lost += [f"no consumer is given {one.key} of {one.topic}" for one in restored.log
             if one.topic in PULLED and one.offset not in restored.pulled]  # fmt: skip
    for group, topics in GROUPS.items():
        for key in {record.key for record in restored.log if record.topic in topics}:
            name = (group, key)
            if not first.done[name] + restored.done[name]:
                lost.append(f"{group} is never done with {key}")
            if first.done[name] + restored.done[name] > 1 and restored.done[name] > control.done[name]:
                twice.append(f"{group} is given {key} {restored.done[name]} times, not {control.done[name]}")
    return lost, twice


def _waiting(first: list[Stored], restored: list[Stored], control: list[Stored], lost: list[str], twice: list[str]) -> None:
    wanted, found, before = due(restored), delivered(restored), delivered(first)
    extra = delivered(control) - due(control)
    for message in wanted.keys() | found.keys():
        if found[message] < wanted[message]:
            lost.append(f"{message} is delivered {found[message]} times, not {wanted[message]}")
        if found[message] - wanted[message] > extra[message] and found[message] > max(before[message], 0):
            twice.append(f"{message} is delivered {found[message]} times, not {wanted[message]}; before {before[message]}")


def _transactions(
    first: list[Stored], restored: list[Stored], control: list[Stored], lost: list[str], twice: list[str]
) -> None:
    before, found, other = committed(first), committed(restored), committed(control)
    fates = {record.key: record.properties for record in restored if record.topic == HALVES and "DECISION" in record.properties}
    for key, said in fates.items():
        never = said.get("CHECKED") == "rollback"
        if not never and not found[key]:
            lost.append(f"the transaction {key} ({said['DECISION']}, then {said.get('CHECKED')}) never comes")
        if found[key] > max(0 if never else 1, before[key], other[key]):
            twice.append(f"the transaction {key} comes {found[key]} times, not {other[key]}; before {before[key]}")


def committed(log: Iterable[Stored]) -> Counter[str]:
    """UNIQ_KEYs of the transactions that were committed."""
    return Counter(record.key for record in log if record.sysflag & TRANSACTION == COMMITTED)
