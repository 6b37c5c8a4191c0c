"""Topics: which names are valid, what a record's topic means, and a broker's topic configuration.

The configuration is RocketMQ's ``TopicConfigManager`` (config/topics.json), read, or drafted from the log. Its JSON is that of
``TopicConfigSerializeWrapper``, which 4.9 and 5.x both parse; 4.9 passes over the fields that it does not know.
"""

import json
import unicodedata
from typing import Any, Final

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
