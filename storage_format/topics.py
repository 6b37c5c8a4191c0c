"""Topics: which names are valid, what a record's topic means, and a broker's topic configuration; and topics, groups and
consumer offsets that a broker keeps in RocksDB, as the JSON of its files in ``config/``.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format import layouts

# ----------------------------------------------------------------------------------------------------------------------- names
# Topic and LMQ names: which may become a path. A name of the log is hostile until it was checked here: only ``path_component``
# turns one into a part of a path.

PLAIN: Final = 1
"""It is one plain path component."""
SLASH: Final = 2
SCHEDULE: Final = 4
DISPATCHES: Final = 8
"""A record of this topic may be dispatched to LMQs as well."""
INCLUDED: Final = 16
LMQ: Final = 32
UNUSUAL: Final = 64
"""It is plain, but ``TopicValidator`` refuses it."""
SEEN: Final = 128
"""A record of the range being scanned was dispatched to it."""
BATCH: Final = 256
"""Its queues are batch ConsumeQueues (``queue.type=BatchCQ``)."""
TOPIC: Final = 512
"""A record of the range being scanned has it as its topic, and gets a unit."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
"""``MixAll.DLQ_GROUP_TOPIC_PREFIX``"""
SYSTEM_PREFIX: Final = "rmq_sys_"
REVIVE_PREFIX: Final = f"{SYSTEM_PREFIX}REVIVE_LOG_"
"""``PopAckConstants.REVIVE_TOPIC``: of a cluster"""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""``TopicValidator.RMQ_SYS_TRACE_TOPIC``; a broker's ``msgTraceTopicName`` may be another"""
TRACE_PREFIX: Final = f"{SYSTEM_PREFIX}TRACE_DATA_"
"""``TraceConstants.TRACE_TOPIC_PREFIX``: a region's topic in the cloud"""
LMQ_PREFIX: Final = "%LMQ%"
TIMER_TOPIC: Final = f"{SYSTEM_PREFIX}wheel_timer"
"""``TimerMessageStore.TIMER_TOPIC``; a broker reads its queue 0 alone"""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""``TransactionalMessageUtil.buildHalfTopic``"""
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""``TransactionalMessageUtil.buildOpTopic``: which half messages were committed or rolled back"""
OP_TAG: Final = "d"
"""``TransactionalMessageUtil.REMOVE_TAG``, the TAGS of each op message that counts"""
DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""``TopicValidator.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC``: half messages that a broker has given up"""
WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})
"""Here messages wait until the broker delivers them, once for each unit that points to them."""
NAME_BYTES_MAX: Final = 255
_PLAIN_CHARACTERS: Final = frozenset("%-_|0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def path_component(name: str) -> str | None:
    """Return ``name`` if it is one plain path component, else None. A plain one has no separator, control character or
    surrogate."""
    if name in ("", ".", "..") or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return None
    if any(c in "/\\" or unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return None
    return name


def is_usual(name: str) -> bool:
    """Return whether ``TopicValidator.validateTopic`` takes the name, apart from its length: V2 records have longer topics."""
    return all(c in _PLAIN_CHARACTERS for c in name)


# --------------------------------------------------------------------------------------------------------------- configuration
# What a broker knows of its topics, in config/topics.json.

SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        DISCARD_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
"""``TopicValidator.SYSTEM_TOPIC_SET`` of 5.3.3: a broker makes these by itself, by settings of its own"""
READ_AND_WRITE: Final = 6
"""``PermName.PERM_READ | PermName.PERM_WRITE``"""
QUEUES_MAX: Final = 1 << 20
"""No topic of a real broker has more queues. Without this bound, a queue id with a flipped bit would become configuration."""
QUEUE_TYPE: Final = "queue.type"
"""``TopicAttributes.QUEUE_TYPE_ATTRIBUTE``"""
BATCH_QUEUE: Final = "BatchCQ"
SIMPLE_QUEUE: Final = "SimpleCQ"


def is_own(name: str) -> bool:
    """Return whether a broker needs no configuration of this topic.

    It is a system topic (``TopicValidator.isSystemTopic``), or an LMQ (``MixAll.isLmq``). %RETRY% and %DLQ% topics are not
    among them: a broker creates these only when their group comes back or fails again, and until then nobody could read them.
    """
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_PREFIX, LMQ_PREFIX))


def topic_entry(name: str, queues: int, batch: bool) -> str:
    """Return one entry of ``topicConfigTable``, ``"name":{...}``, with the fields in RocketMQ's order.

    ``queues`` is the number of read and of write queues; ``batch`` whether they are batch ConsumeQueues.
    """
    config = {
        "attributes": {QUEUE_TYPE: BATCH_QUEUE} if batch else {},
        "order": False,
        "perm": READ_AND_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
    return f"{json.dumps(name)}:{json.dumps(config, separators=(',', ':'))}"


def data_version(time: int) -> str:
    """Return the ``dataVersion`` (``DataVersion``) of a draft. ``time``: a store time of the log, in milliseconds since
    1970."""
    return json.dumps({"counter": 1, "stateVersion": 0, "timestamp": time}, separators=(",", ":"))


def batch_topics(text: str) -> tuple[str, ...]:
    """Return the topics of a topics.json whose queues are batch ConsumeQueues, sorted.

    Raises ValueError with what is wrong with it (no JSON, no ``topicConfigTable``, a queue type of no file kind known here).
    """
    topics = []
    for name, config in _table(text).items():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        # QueueTypeUtils.getCQType: without the attribute a queue is simple.
        kind = attributes.get(QUEUE_TYPE, SIMPLE_QUEUE) if isinstance(attributes, dict) else SIMPLE_QUEUE
        if kind not in (SIMPLE_QUEUE, BATCH_QUEUE):
            raise ValueError(f"topic {name!a} has {QUEUE_TYPE} {kind!a}, which is neither {SIMPLE_QUEUE} nor {BATCH_QUEUE}")
        if kind == BATCH_QUEUE:
            topics.append(name)
    return tuple(sorted(topics))


def is_lite(config: object) -> bool:
    """Return whether an entry of a topics.json is a lite topic's (``TopicConfig.getTopicMessageType``, 5.5.1)."""
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get("message.type") == "LITE"


def lite_parent(topic: str) -> str:
    """Return the lite topic of a light queue that is named as 5.5 names them, ``%LMQ%$PARENT$CHILD``; "" for another one."""
    prefix, parent, *child = topic.split("$", 2) if topic.startswith(f"{LMQ_PREFIX}$") else ("", "")
    return parent if prefix == LMQ_PREFIX and child else ""


def topic_names(text: str) -> frozenset[str]:
    """Return the topics of a topics.json. Raises ValueError with what is wrong with it."""
    return frozenset(_table(text))


def _table(text: str) -> dict[str, Any]:
    table = json.loads(text)
    table = table.get("topicConfigTable") if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise ValueError("has no topicConfigTable")
    return table


Pairs = Iterable[tuple[bytes, bytes]]


class Part(NamedTuple):
    """One of the three: its file of JSON and the table there, its own folder, its family in a shared one, its id of v2."""

    file: str
    table: str
    folder: str
    family: str
    table_id: int
    named: str
    """what an entry of the table is, in words"""


TOPICS: Final = Part("topics.json", "topicConfigTable", "topics", "topic", 3, "topics")
GROUPS: Final = Part("subscriptionGroup.json", "subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", 4, "groups")
OFFSETS: Final = Part("consumerOffset.json", "offsetTable", "consumerOffsets", "consumerOffset", 1, "consumer offsets")
PARTS: Final = (TOPICS, GROUPS, OFFSETS)
SHARED, NUMBERED = "metadata", "rdb"
"""The folders in ``config/`` of a database that all share, and of that of v2."""
DEFAULT: Final = "default"
FORBIDDEN, FORBIDDEN_TABLE = "forbidden", "forbiddenTable"
"""The family, and the table in the groups' file, of what a group may not read; v2 has none."""
VERSION_KEY: Final = b"kvDataVersionKey"
_HEAD: Final = struct.Struct(">BHB")
"""the begin of a key of v2: a mark of tables, the table, the kind of record"""
_TABLE, _VERSION, _DATA = 1, 1, 2
_LENGTH: Final = struct.Struct(">H")
_MARK: Final = b"\x01"
_QUEUE: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_STAMP: Final = struct.Struct(">qqq")
_JSON: Final = 1
"""``SerializationType.JSON``, the only one that is written"""


class Decoded(NamedTuple):
    """The JSON object of a file in ``config/``, and the names of entries that could not be read."""

    said: dict[str, Any]
    broken: list[str]


def version_family(family: str) -> str:
    """Return the family with the data version of a family (``RocksDBConfigManager``, 5.3.3 and 5.5.1)."""
    return "kvDataVersion" if family == DEFAULT else f"{family}Version"


def is_numbered(families: Iterable[str], first_key: bytes | None) -> bool:
    """Return whether a database is one of v2, by its families and its first key. No name of a topic or group begins so."""
    return set(families) == {DEFAULT} and first_key is not None and first_key.startswith(bytes((_TABLE, 0)))


def part_of(name: str, value: bytes | None) -> Part | None:
    """Return what a database of one part is of, by the name of its folder, or else by a value; None for what is none."""
    for part in PARTS:
        if name == part.folder:
            return part
    entry = _json(value or b"")
    signs = {"topicName": TOPICS, "groupName": GROUPS, OFFSETS.table: OFFSETS}
    return next((part for sign, part in signs.items() if sign in entry), None) if isinstance(entry, dict) else None


def by_names(part: Part, pairs: Pairs, version: bytes | None, forbidden: Pairs = ()) -> Decoded:
    """Return a table whose keys are names (``RocksDBTopicConfigManager`` and its like, 5.3.3 to 5.5.1).

    ``version`` is the value of ``VERSION_KEY``; ``forbidden`` are pairs of that family.
    """
    stamp = _json(version or b"{}")
    said: dict[str, Any] = {part.table: {}, "dataVersion": stamp if isinstance(stamp, dict) else {}}
    decoded = Decoded(said, [] if isinstance(stamp, dict) else [VERSION_KEY.decode()])
    for key, value in pairs:
        name, entry = layouts.java_text(key), _json(value)
        if part is OFFSETS:
            # RocksDBOffsetSerializeWrapper
            entry = entry.get(part.table) if isinstance(entry, dict) else None
        _add(decoded, part.table, name, entry)
    for key, value in forbidden:
        said.setdefault(FORBIDDEN_TABLE, {})
        _add(decoded, FORBIDDEN_TABLE, layouts.java_text(key), _json(value))
    return decoded


def _add(decoded: Decoded, table: str, name: str, entry: object) -> None:
    # Keys that are no UTF-8 may become one name: the later one counts.
    if not isinstance(entry, dict) or name in decoded.said[table]:
        decoded.broken.append(name)
    if isinstance(entry, dict):
        decoded.said[table][name] = entry


def numbered_range(table_id: int) -> tuple[bytes, bytes]:
    """Return from which key on, and below which, the records of one table of v2 stand, its data version among them."""
    return _HEAD.pack(_TABLE, table_id, 0), _HEAD.pack(_TABLE, table_id + 1, 0)


def by_numbers(part: Part, pairs: Pairs) -> Decoded:
    """Return a table of v2 (``TopicConfigManagerV2`` and its like, 5.3.3 to 5.5.1) from the pairs of its range."""
    decoded = Decoded({part.table: {}, "dataVersion": {}}, [])
    for key, value in pairs:
        kind, rest = key[_HEAD.size - 1 : _HEAD.size], key[_HEAD.size :]
        if kind == bytes((_VERSION,)):
            if len(value) == _STAMP.size:
                state, time, counter = _STAMP.unpack(value)
                decoded.said["dataVersion"] = {"counter": counter, "stateVersion": state, "timestamp": time}
        elif kind != bytes((_DATA,)):
            continue
        elif part is OFFSETS:
            _add_offset(decoded, rest, value)
        else:
            name, behind = _text(rest)
            entry = _json(value[1:]) if value[:1] == bytes((_JSON,)) and not behind and name is not None else None
            _add(decoded, part.table, layouts.java_text(rest[_LENGTH.size :] if name is None else name), entry)
    return decoded


def _add_offset(decoded: Decoded, key: bytes, value: bytes) -> None:
    """Put one offset into its group's entry (``ConsumerOffsetManagerV2.keyOfConsumerOffset``)."""
    group, behind = _text(key)
    topic, queue = _text(behind[1:]) if behind[:1] == _MARK else (None, b"")
    if group is None or topic is None or queue[:1] != _MARK or len(queue) != 1 + _QUEUE.size or len(value) != _OFFSET.size:
        decoded.broken.append(layouts.java_text(key[_LENGTH.size :]))
        return
    name = f"{layouts.java_text(topic)}@{layouts.java_text(group)}"
    offsets = decoded.said[OFFSETS.table].setdefault(name, {})
    offsets[str(_QUEUE.unpack(queue[1:])[0])] = _OFFSET.unpack(value)[0]


def _text(data: bytes) -> tuple[bytes | None, bytes]:
    """Return a text behind its length, and what is behind it; None for one that is cut short."""
    if len(data) < _LENGTH.size:
        return None, b""
    stop = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return (data[_LENGTH.size : stop], data[stop:]) if stop <= len(data) else (None, b"")


def _json(data: bytes) -> Any:
    """Return JSON of fastjson; None for what is none."""
    try:
        return layouts.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def stamp_of(said: Mapping[str, Any], field: str) -> int:
    """Return a number of a table's data version (``counter``, or ``timestamp`` in ms); 0 where it has none, as a broker."""
    version = said.get("dataVersion")
    number = version.get(field) if isinstance(version, dict) else None
    return number if type(number) is int else 0
