"""Layout of one commitlog record (RocketMQ ``CommitLog``, ``MessageExtEncoder``, 4.9 to 5.5), and codes for what stands
there; and the bodies of the broker's own records: op messages, POP check points and acknowledgements, traces.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.storage_format.layouts import INT32, INT32_MAX, INT64, INT64_MAX, Field, Layout

CRC_NONE, CRC_BODY, CRC_ALL = range(3)
CRC_MODES: Final = {"none": CRC_NONE, "body": CRC_BODY, "all": CRC_ALL}
"""by the words of options"""
"""Which checksums are verified: none, the body's, the whole record's as well where it has one"""
MAGIC_V1: Final = -626843481
"""``MessageDecoder.MESSAGE_MAGIC_CODE``"""
MAGIC_V2: Final = -626843477
"""``MessageDecoder.MESSAGE_MAGIC_CODE_V2``: 5.x, topics longer than 127 bytes"""
MAGIC_BYTES: Final = (0xDA, 0xA3)
"""the first bytes of both"""
MAGIC_BLANK: Final = -875286124
"""``CommitLog.BLANK_MAGIC_CODE``: fills the rest of a segment"""

HEAD_LAYOUT: Final = Layout(
    Field("TOTALSIZE", "size", INT32),
    Field("MAGICCODE", "magic", INT32),
    Field("BODYCRC", "body_crc", INT32),
    Field("QUEUEID", "queue_id", INT32),
    Field("FLAG", "flag", INT32),
    Field("QUEUEOFFSET", "queue_offset", INT64),
    Field("PHYSICALOFFSET", "phy_offset", INT64),
    Field("SYSFLAG", "sys_flag", INT32),
    Field("BORNTIMESTAMP", "born_time", INT64),
)
"""What stands before the hosts."""
TAIL_LAYOUT: Final = Layout(
    Field("RECONSUMETIMES", "reconsume_times", INT32),
    Field("PREPAREDTRANSACTIONOFFSET", "prepared_offset", INT64),
    Field("BODYLENGTH", "body_length", INT32),
)
"""What stands between the hosts and the body."""
IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16
IPV6_EXTRA: Final = IPV6_SIZE - IPV4_SIZE
_HOST_SIZE: Final = IPV4_SIZE + 4

AT_MAGIC: Final = HEAD_LAYOUT.at["magic"]
AT_BODY_CRC: Final = HEAD_LAYOUT.at["body_crc"]
AT_QUEUE_ID: Final = HEAD_LAYOUT.at["queue_id"]
AT_FLAG: Final = HEAD_LAYOUT.at["flag"]
AT_QUEUE_OFFSET: Final = HEAD_LAYOUT.at["queue_offset"]
AT_PHYSICAL_OFFSET: Final = HEAD_LAYOUT.at["phy_offset"]
AT_SYS_FLAG: Final = HEAD_LAYOUT.at["sys_flag"]
AT_BORN_TIMESTAMP: Final = HEAD_LAYOUT.at["born_time"]
AT_BORN_HOST: Final = HEAD_LAYOUT.size
AT_STORE_TIMESTAMP: Final = AT_BORN_HOST + _HOST_SIZE
AT_STORE_HOST: Final = AT_STORE_TIMESTAMP + 8
_AT_TAIL: Final = AT_STORE_HOST + _HOST_SIZE
AT_RECONSUME_TIMES: Final = _AT_TAIL + TAIL_LAYOUT.at["reconsume_times"]
AT_PREPARED_OFFSET: Final = _AT_TAIL + TAIL_LAYOUT.at["prepared_offset"]
AT_BODY_LENGTH: Final = _AT_TAIL + TAIL_LAYOUT.at["body_length"]
HEADER_SIZE: Final = _AT_TAIL + TAIL_LAYOUT.size
"""Bytes before the body, both hosts IPv4."""
FILLER_MIN: Final = 8
"""``CommitLog.END_FILE_MIN_BLANK_LENGTH``: TOTALSIZE and MAGICCODE of a filler"""
RECORD_MIN: Final = HEADER_SIZE + 1 + 2
TOPIC_V1_MAX: Final = 127
"""bytes of a topic in a V1 record: its length is one signed byte"""
PROPERTIES_MAX: Final = 32767
"""bytes of properties: their length is a signed short"""

FLAG_TRANSACTION_MASK: Final = 0x0C
TRANSACTION_NONE: Final = 0x00
TRANSACTION_PREPARED: Final = 0x04
TRANSACTION_COMMIT: Final = 0x08
TRANSACTION_ROLLBACK: Final = 0x0C
FLAG_INNER_BATCH: Final = 0x80
"""``MessageSysFlag.INNER_BATCH_FLAG``: several messages in one record, of a batch ConsumeQueue"""
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20

LOST_FLAG: Final = 0x4C4F5354
"""``LOST`` in ASCII: FLAG of a record that stands for lost bytes. FLAG is the application's, and no broker reads it"""
LOST_TAG_CODE: Final = -1271908892
"""Java's hashCode of ``__LOST__``, the tag of a tombstone"""
LOST_BLANK_MIN: Final = FILLER_MIN + 4
"""Least bytes of a segment's filler that stands for lost bytes: LOST_FLAG follows its first eight, and no broker reads it"""

# An entry of a DLedger log (``DLedgerEntryCoder``, dledger 0.2 and 0.3). A broker with ``enableDLegerCommitLog`` keeps its log
# in ``dledger-<selfId>/data``: files as those of a commitlog, of entries that follow on each other. Each is a header, and a
# record, whose PHYSICALOFFSET is that of its own first byte. Nobody sets the two CRCs: both are always 0.
ENTRY_LAYOUT: Final = Layout(
    Field("MAGIC", "magic", INT32),
    Field("SIZE", "size", INT32),
    Field("INDEX", "index", INT64),
    Field("TERM", "term", INT64),
    Field("POS", "position", INT64),
    Field("CHANNEL", "channel", INT32),
    Field("CHAINCRC", "chain_crc", INT32),
    Field("BODYCRC", "body_crc", INT32),
    Field("BODYSIZE", "body_size", INT32),
)
ENTRY_POSITION: Final = ENTRY_LAYOUT.columns.index("position")
"""which of its fields says where the entry lies"""
ENTRY_HEAD: Final = ENTRY_LAYOUT.size
"""``DLedgerEntry.BODY_OFFSET``: bytes of an entry in front of its record"""
ENTRY_NORMAL: Final = 1
"""``DLedgerEntryType.NORMAL``: an entry with a message"""
ENTRY_LAST_KIND: Final = 3
"""NOOP is 2, CONFIG_CHANGE 3: no broker writes them, and none reads on behind them (``DLedgerCommitLog``)"""
ENTRY_BLANK: Final = -1
"""``MmapFileList.BLANK_MAGIC_CODE``: with its size it fills the rest of a file"""

CRC_PROPERTY_SIZE: Final = 20
"""``CommitLog.CRC32_RESERVED_LEN``: ``__CRC32#``, 0x01, ten digits, 0x02"""

# A unit's logical byte offset (queue offset x 20) and the end of its file must stay below 2**63.
QUEUE_OFFSET_MAX: Final = (INT64_MAX + 1 - 2**40) // 20

# What may stand at one byte of the log, or why a loop stopped there. Codes from FIRST_DAMAGE on are kinds of damage.
GOOD: Final = 0
LIMIT: Final = 1
MORE: Final = 2
FILLER: Final = 3
ZERO: Final = 4
NEW_NAME: Final = 5
UNITS_FULL: Final = 6
ITEMS_FULL: Final = 7
QUEUES_FULL: Final = 8
LATER: Final = 9
NOT_FOUND: Final = 10
LMQ_MALFORMED: Final = 11
NEW_LMQS: Final = 12
NEW_LOST: Final = 13
UNCOMMITTED: Final = 14
AHEAD: Final = 15
FIRST_DAMAGE: Final = 20
BAD_MAGIC: Final = 20
BAD_SIZE: Final = 21
BAD_LENGTHS: Final = 22
BAD_FILLER: Final = 24
NO_ROOM: Final = 25
BAD_ENTRY: Final = 26
# From FIRST_FRAMED on the length of the damaged record is known: a walk goes on behind it.
FIRST_FRAMED: Final = 30
BAD_BODY_CRC: Final = 30
BAD_PROPERTY_CRC: Final = 31
BAD_NUMBER: Final = 32
BAD_TOPIC: Final = 33
BAD_QUEUE: Final = 34
BAD_VERSION: Final = 35
BAD_POSITION: Final = 37
NO_MESSAGE: Final = 38
BAD_ORDER: Final = 39
STALE_ENTRY: Final = 40

REASONS: Final = {
    ZERO: "zeros where a record should start",
    BAD_MAGIC: "bad magic code",
    BAD_SIZE: "impossible record size",
    BAD_LENGTHS: "record size differs from the sum of its parts",
    BAD_POSITION: "physical offset is not where the record lies",
    BAD_FILLER: "BLANK at a segment's end of a wrong size",
    NO_ROOM: "too few bytes left in the segment for a record",
    BAD_ENTRY: "bad header of a DLedger entry",
    NO_MESSAGE: "DLedger entry without a message",
    BAD_ORDER: "DLedger entry whose index does not follow",
    STALE_ENTRY: "DLedger entry that is older than those before it",
    BAD_BODY_CRC: "body CRC does not match",
    BAD_PROPERTY_CRC: "record CRC (__CRC32#) does not match",
    BAD_NUMBER: "DELAY, INNER_NUM or INNER_BASE is not a number",
    BAD_TOPIC: "topic is not one plain path component",
    BAD_QUEUE: "impossible queue id or queue offset",
    BAD_VERSION: "V2 record, unknown to RocketMQ 4.9",
}
MISSING_SEGMENT: Final = "segment missing"
OUT_OF_LINE: Final = "queue offset out of line"


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
