"""What a record means: a message as clients get it, or one of the broker's own, and of which message that speaks.

The rules stand here once. ``udfs.messages.meaning_columns`` applies them to many records at once, ``meaning`` to one.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.layouts import INT32_MAX, java_text
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import (
    CHECK_POINT_TAG,
    PopRecord,
    as_number,
    op_offsets,
    pop_record,
    trace_records,
)
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.topics import (
    DEAD_LETTER_PREFIX,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_PREFIX,
    TRACE_TOPIC,
)

# ------------------------------------------------------------------------------------------------------------------------ kinds
# The kind of a record, by its topic.

MESSAGE: Final = "message"
HALF, OP, GIVEN_UP = "half", "op", "given_up"
SCHEDULED, TIMER = "scheduled", "timer"
RETRY, DEAD_LETTER = "retry", "dead_letter"
POP, TRACE, SYSTEM = "pop", "trace", "system"

OF_CLIENTS: Final = frozenset({MESSAGE, RETRY, DEAD_LETTER})
"""kinds whose records are messages of clients, where a client finds them: a broker does nothing by itself for one"""

_BY_NAME: Final = {
    HALF_TOPIC: HALF,
    OP_TOPIC: OP,
    DISCARD_TOPIC: GIVEN_UP,
    SCHEDULE_TOPIC: SCHEDULED,
    TIMER_TOPIC: TIMER,
    TRACE_TOPIC: TRACE,
}
_BY_PREFIX: Final = (
    (RETRY_PREFIX, RETRY),
    (DEAD_LETTER_PREFIX, DEAD_LETTER),
    (REVIVE_PREFIX, POP),
    (TRACE_PREFIX, TRACE),
    (SYSTEM_PREFIX, SYSTEM),
)


def kind_of(topic: str) -> str:
    """Return the kind of the records of a topic."""
    if topic in _BY_NAME:
        return _BY_NAME[topic]
    by_prefix = next((kind for prefix, kind in _BY_PREFIX if topic.startswith(prefix)), None)
    return by_prefix or (SYSTEM if topic in SYSTEM_TOPICS else MESSAGE)


# ------------------------------------------------------------------------------------------------------------------------ rules
# Where a record says of which message it speaks.


class Rule(NamedTuple):
    """The properties that say it, for records of one kind: the first that is there."""

    topic: tuple[str, ...] = ()
    queue: str = ""
    deliver_time: str = ""
    origin: tuple[str, ...] = ()
    """the id of the message that this one was made from"""


_WAITING: Final = Rule(("REAL_TOPIC",), "REAL_QID")
RULES: Final = {
    HALF: _WAITING,
    GIVEN_UP: _WAITING,
    SCHEDULED: _WAITING,
    TIMER: _WAITING._replace(deliver_time="TIMER_OUT_MS"),
    RETRY: Rule(topic=("RETRY_TOPIC",), origin=("ORIGIN_MESSAGE_ID",)),
    DEAD_LETTER: Rule(topic=("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"), origin=("DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID")),
}
"""by kind; of the others neither topic nor queue is a property"""
BODY_KINDS: Final = frozenset({OP, POP})
"""kinds whose records say it in their body"""
OFFSET_ID: Final = "^(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})$"
"""A message id with the offset in the log (``MessageDecoder.createMessageId``): the last 16 digits. Others are UNIQ_KEYs."""
OFFSET_DIGITS: Final = 16
BODY_MAX: Final = 4 << 20
"""bytes of a body that are looked at: ``MessageStoreConfig.maxMessageSize``, the most that a broker writes by default"""
_OFFSET_ID: Final = re.compile(OFFSET_ID)


DELAYED: Final = frozenset({"DELAY", "TIMER_OUT_MS"})
"""A message has one of these if it waited. Its copy keeps the flags of a committed one, and no offset of a half message."""


REPLAY_ORIGIN: Final = "reindex_origin_"
"""begins the names of the properties that say where a message comes from that `rmq-reindex replay` sent"""


class Place(NamedTuple):
    """A queue, or an offset in it, and who read there; None is what is not said."""

    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    """where it is one offset that the record speaks of"""
    group: str | None = None
    deliver_time: int | None = None


def group_of(topic: str) -> tuple[str | None, str | None]:
    """Return the group of a retry or dead letter topic, and the topic of the messages where the name says it.

    A retry topic of POP has both (``KeyBuilder.buildPopRetryTopic``): ``group+topic``, or ``group_topic``, which may be a group
    with that name, too.
    """
    group = topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
    before, split, after = group.partition("+")
    return (before, after) if split and topic.startswith(RETRY_PREFIX) else (group or None, None)


def pop_group(retry_topic: str, topic: str) -> str | None:
    """Return the group to which POP gives messages of ``topic`` back by a retry topic; None where its name is another."""
    named = retry_topic.removeprefix(RETRY_PREFIX) if retry_topic.startswith(RETRY_PREFIX) else ""
    return next((named.removesuffix(end) for end in (f"+{topic}", f"_{topic}") if named.endswith(end)), None)


def said_by_body(kind: str, body: bytes, tag: str | None, queue_id: int) -> Place:
    """Return what the body of a record says, which is one of BODY_KINDS. ``queue_id`` is the record's own."""
    if kind == OP:
        offsets = op_offsets(body)
        # An op queue has the number of its half queue (TransactionalMessageBridge.getOpQueueByHalf).
        return Place(HALF_TOPIC, queue_id, offsets[0] if len(offsets) == 1 else None)
    pop = pop_record(body, tag)
    if pop is None:
        return Place()
    offset = pop.offsets[0] if len(pop.offsets) == 1 else None
    return Place(pop.topic, pop.queue_id, offset, pop.group, pop.revive_time if tag == CHECK_POINT_TAG else None)


# ---------------------------------------------------------------------------------------------------------------------- meaning
# What one record means.


@dataclass(frozen=True)
class Meaning:
    """What a record means. ``origin_offset`` is the phy_offset of the record that it was made from, in the log of the host that
    stored that one. ``deliver_time`` is milliseconds. ``details`` are fields of its kind alone, ready for JSON."""

    kind: str
    place: Place
    origin_offset: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, by the names of the columns of ``rocketmq-commitlog``."""
        known = {
            "kind": self.kind,
            "realTopic": self.place.topic,
            "realQueueId": self.place.queue_id,
            "realQueueOffset": self.place.queue_offset,
            "consumerGroup": self.place.group,
            "originOffset": self.origin_offset,
            "deliverTimestamp": self.place.deliver_time,
            **self.details,
        }
        return {name: value for name, value in known.items() if value is not None}


def offset_of_id(message_id: str | None) -> int | None:
    """Return the offset in the log that a message id has; None for a unique key."""
    if message_id is None or not _OFFSET_ID.fullmatch(message_id):
        return None
    offset = int(message_id[-OFFSET_DIGITS:], 16)
    return offset if offset < 1 << 63 else None


def needs_body(message: Message) -> bool:
    """Return whether the meaning of a record stands in its body, too."""
    kinds = {kind_of(message.topic), kind_of(message.properties.get("REAL_TOPIC", ""))}
    return not kinds.isdisjoint({*BODY_KINDS, TRACE})


def meaning(message: Message, body: bytes, delays: tuple[int, ...]) -> Meaning:
    """Return what a record means.

    Args:
        message: The record.
        body: Its body, unpacked, where it ``needs_body``; else it is not looked at.
        delays: Milliseconds of each delay level, from 1 on.
    """
    kind = kind_of(message.topic)
    said = message.properties
    if kind == MESSAGE:
        committed = message.sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_COMMIT
        delivered = message.prepared_offset == 0 and not DELAYED.isdisjoint(said)
        origin = message.prepared_offset if committed and not delivered else None
        return Meaning(kind, Place(message.topic, message.queue_id), origin, _light_queues(message))
    if kind in BODY_KINDS:
        return Meaning(kind, said_by_body(kind, body, message.tags, message.queue_id), details=_of_body(kind, body, message))
    if kind == TRACE:
        return Meaning(kind, Place(), details={"traces": trace_records(java_text(body))})
    rule = RULES.get(kind)
    if rule is None:
        return Meaning(kind, Place(message.topic, message.queue_id))
    group, named_topic = group_of(message.topic) if kind in (RETRY, DEAD_LETTER) else (None, None)
    topic = next((said[name] for name in rule.topic if name in said), named_topic)
    deliver_time = as_number(said.get(rule.deliver_time, ""))
    if kind == SCHEDULED:
        deliver_time = _scheduled_time(message, delays)
    origin_id = next((said[name] for name in rule.origin if name in said), None)
    details: dict[str, Any] = {"originMessageId": origin_id} if origin_id is not None else {}
    if kind in (RETRY, DEAD_LETTER):
        details["attempt"] = message.reconsume_times
    if "TIMER_DEL_UNIQKEY" in said and kind == TIMER:
        details["recalls"] = said["TIMER_DEL_UNIQKEY"]
    waits_for = kind_of(topic) if topic is not None else MESSAGE
    if waits_for in BODY_KINDS and kind in (SCHEDULED, TIMER):
        details |= _of_body(waits_for, body, message)
    return Meaning(
        kind, Place(topic, as_queue(said.get(rule.queue)), None, group, deliver_time), offset_of_id(origin_id), details
    )


def as_queue(text: str | None) -> int | None:
    """Return the number of a queue that a property is; None where it is none."""
    number = None if text is None else as_number(text)
    return number if number is not None and number <= INT32_MAX else None


def _scheduled_time(message: Message, delays: tuple[int, ...]) -> int | None:
    """Return when a broker delivers a message of SCHEDULE_TOPIC_XXXX (``ScheduleMessageService.computeDeliverTimestamp``)."""
    level = as_number(message.properties.get("DELAY", ""))
    return message.store_time + delays[min(level, len(delays)) - 1] if level and delays else None


def _of_body(kind: str, body: bytes, message: Message) -> dict[str, Any]:
    if kind == OP:
        return {"halfOffsets": list(op_offsets(body))}
    pop = pop_record(body, message.tags)
    return {} if pop is None else {"pop": _pop_fields(pop, message.tags)}


def _pop_fields(pop: PopRecord, tag: str | None) -> dict[str, Any]:
    record = "checkPoint" if tag == CHECK_POINT_TAG else "acknowledgement"
    fields: dict[str, Any] = {
        "record": record, "group": pop.group, "topic": pop.topic, "queueId": pop.queue_id, "startOffset": pop.start_offset,
        "offsets": list(pop.offsets), "popTime": pop.pop_time, "broker": pop.broker,
    }  # fmt: skip
    return fields | ({"reviveTime": pop.revive_time} if tag == CHECK_POINT_TAG else {})


def _light_queues(message: Message) -> dict[str, Any]:
    """Return the LMQs that a record is dispatched to as well, with its offset in each (``INNER_MULTI_DISPATCH``)."""
    names = message.properties.get("INNER_MULTI_DISPATCH")
    if not names:
        return {}
    offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    queues = [name for name in names.split(",") if name]
    return {
        "lightQueues": [{"queue": name, "offset": as_number(offset)} for name, offset in zip(queues, offsets, strict=False)]
    }
