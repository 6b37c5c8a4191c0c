"""The bodies of the broker's own records: op messages, POP check points and acknowledgements, traces.

A body is what a log holds: it may be anything. One that does not read as its class writes it is None, or a trace of no type.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX

_NUMBER_DIGITS: Final = 19
"""digits of the largest Java long"""


def as_number(text: str) -> int | None:
    """Return the number, from 0 to the largest Java long, that a text of digits is; None for other texts."""
    if not text.isascii() or not text.isdigit() or len(text) > _NUMBER_DIGITS:
        return None
    number = int(text)
    return number if number <= INT64_MAX else None


# --------------------------------------------------------------------------------------------------------------------------- op
# Op messages: which half messages are decided.


def op_offsets(body: bytes) -> tuple[int, ...]:
    """Return the queue offsets of half messages in an op message (``TransactionalMessageServiceImpl.fillOpRemoveMap``).

    Its body is one offset, or since 5.x several, each followed by a comma. Words that are no number are left out.
    """
    numbers = (as_number(word.strip()) for word in body.decode("ascii", "replace").split(","))
    return tuple(number for number in numbers if number is not None)


# -------------------------------------------------------------------------------------------------------------------------- pop
# POP: which messages a group took, until when, and which of them it acknowledged.

CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
"""``PopAckConstants``: the TAGS of records in a revive topic"""


@dataclass(frozen=True)
class PopRecord:
    """What a record of a revive topic says: ``PopCheckPoint``, ``AckMsg`` or ``BatchAckMsg``. Times are milliseconds.

    ``offsets`` are queue offsets of ``topic``/``queue_id``: those that were taken, or those that are acknowledged.
    """

    group: str
    topic: str
    queue_id: int
    start_offset: int
    offsets: tuple[int, ...]
    pop_time: int
    invisible_time: int
    """how long the messages are hidden from other clients of the group; 0 in an acknowledgement, which does not say it"""
    broker: str
    is_again: bool = False
    """whether the broker put a check point anew, and no client took anything"""

    @property
    def revive_time(self) -> int:
        """Until when a check point hides its messages (``PopCheckPoint.getReviveTime``)."""
        return self.pop_time + self.invisible_time


def pop_record(body: bytes, tag: str | None) -> PopRecord | None:
    """Return what the JSON body of a record of a revive topic says; ``tag`` is its TAGS. None where it says nothing."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    # The longer names are those of AckMsg before 5.0.
    start = _number_of(said, "so", "startOffset")
    topic, group = _text_of(said, "t", "topic"), _text_of(said, "c", "consumerGroup")
    if start is None or topic is None or group is None:
        return None
    offsets = _taken(said, start) if tag == CHECK_POINT_TAG else _acknowledged(said, tag)
    queue_id = _number_of(said, "q", "queueId") or 0
    pop_time, invisible_time = _number_of(said, "pt", "popTime") or 0, _number_of(said, "it") or 0
    # No Java field holds a larger number.
    if offsets is None or queue_id > INT32_MAX or max(pop_time + invisible_time, *offsets, 0) > INT64_MAX:
        return None
    return PopRecord(group, topic, queue_id, start, offsets, pop_time, invisible_time, _text_of(said, "bn") or "", "rp" in said)


def _taken(said: dict[str, Any], start: int) -> tuple[int, ...] | None:
    """Return the offsets of a check point: ``PopCheckPoint.ackOffsetByIndex``."""
    differences = said.get("d")
    if isinstance(differences, list) and differences:
        if not all(_is_number(difference) for difference in differences):
            return None
        return tuple(start + difference for difference in differences)
    # ``num`` is a Java byte.
    return tuple(range(start, start + min(_number_of(said, "n") or 0, 127)))


def _acknowledged(said: dict[str, Any], tag: str | None) -> tuple[int, ...] | None:
    if tag == BATCH_ACK_TAG:
        offsets = said.get("aol", said.get("ackOffsetList"))
        return tuple(offsets) if isinstance(offsets, list) and all(map(_is_number, offsets)) else None
    offset = _number_of(said, "ao", "ackOffset")
    return None if offset is None or tag != ACK_TAG else (offset,)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX


def _number_of(said: dict[str, Any], *names: str) -> int | None:
    return next((said[name] for name in names if _is_number(said.get(name))), None)


def _text_of(said: dict[str, Any], *names: str) -> str | None:
    text = next((said[name] for name in names if isinstance(said.get(name), str)), None)
    # An escape may stand for half a character, which no UTF-8 has.
    return None if text is None else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ----------------------------------------------------------------------------------------------------------------------- traces
# What clients of 4.x, and others with tracing on, wrote of their messages: ``TraceDataEncoder``.

FIELD_END, RECORD_END = "\x01", "\x02"
"""``TraceConstants.CONTENT_SPLITOR`` and ``FIELD_SPLITOR``"""
_MESSAGE_TYPES: Final = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")
"""``MessageType``, by number"""
_SUBJECT: Final = ("timeStamp", "regionId", "groupName", "topic", "msgId")
_PUB: Final = ("traceType", *_SUBJECT, "tags", "keys", "storeHost", "bodyLength", "costTime", "msgType")
_TRACE_FIELDS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "Pub": ((*_PUB,), (*_PUB, "success"), (*_PUB, "offsetMsgId", "success"), (*_PUB, "offsetMsgId", "success", "clientHost")),
    "SubBefore": (("traceType", "timeStamp", "regionId", "groupName", "requestId", "msgId", "retryTimes", "keys"),),
    "SubAfter": (
        ("traceType", "requestId", "msgId", "costTime", "success", "keys"),
        ("traceType", "requestId", "msgId", "costTime", "success", "keys", "contextCode"),
        ("traceType", "requestId", "msgId", "costTime", "success", "keys", "contextCode", "timeStamp", "groupName"),
    ),
    "EndTransaction": (
        (
            "traceType", *_SUBJECT, "tags", "keys", "storeHost", "msgType", "transactionId", "transactionState",
            "fromTransactionCheck",
        ),
    ),
    "Recall": (("traceType", *_SUBJECT, "success"),),
}  # fmt: skip
"""The fields of each type, one tuple for each number of them that ``decoderFromTraceDataString`` takes, fewest first"""
_NUMBER: Final = re.compile("-?[0-9]{1,18}")
_NUMBERS: Final = frozenset({"timeStamp", "bodyLength", "costTime", "retryTimes", "contextCode"})
_FLAGS: Final = frozenset({"success", "fromTransactionCheck"})


def trace_records(text: str) -> list[dict[str, Any]]:
    """Return the trace records in a trace message's body, each with ``TraceDataEncoder``'s fields of its type.

    A record that is of no known type, or lacks fields, has ``traceType`` None and ``text``, what stands there.
    """
    return [_trace_record(record) for record in text.split(RECORD_END) if record]


def _trace_record(record: str) -> dict[str, Any]:
    # Java's String.split leaves out empty texts at the end.
    words = record.rstrip(FIELD_END).split(FIELD_END)
    known = _TRACE_FIELDS.get(words[0], ())
    if known and known[0][-1] == "keys" and len(words) == len(known[0]) - 1:
        words.append("")  # No keys, at the end of SubBefore.
    fitting = [names for names in known if len(names) <= len(words)]
    unknown = {"traceType": None, "text": record}
    if not fitting:
        return unknown
    trace: dict[str, Any] = {}
    for name, word in zip(fitting[-1], words, strict=False):
        trace[name] = _trace_value(name, word)
        if trace[name] is None and word not in ("", "null"):
            return unknown
    return trace


def _trace_value(name: str, word: str) -> Any:
    """Return a field's value, as its Java class has it; None where it is no such value."""
    if name in _NUMBERS:
        return int(word) if _NUMBER.fullmatch(word) else None
    if name in _FLAGS:
        return word.lower() == "true"
    if name == "msgType":
        number = as_number(word)
        return _MESSAGE_TYPES[number] if number is not None and number < len(_MESSAGE_TYPES) else None
    return None if word == "null" else word
