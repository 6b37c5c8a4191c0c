"""Which names from the log may become a folder, and which LMQ a record goes to.

Java: ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (5.3), and in 4.9
DefaultMessageStore.checkMultiDispatchQueue.
"""

import functools
import unicodedata

from tests.reference import java

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
WAITING_TOPICS = (SCHEDULE_TOPIC, "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")
RETRY_PREFIX = "%RETRY%"
SYSTEM_PREFIX = "rmq_sys_"
LMQ_PREFIX = "%LMQ%"
LONGEST_NAME = 255  # bytes of UTF-8: what a file system takes
HIGHEST_QUEUE_OFFSET = java.LONG_MAX // 20 - 1  # one more and the unit's end has no place in a signed 64-bit file name


@functools.lru_cache(java.KEPT)
def is_plain_component(name: str) -> bool:
    """Whether a topic (a Java string) is one plain path component and so may be used in a path."""
    text = java.python_text(name)
    if text in ("", ".", "..") or "/" in text or "\\" in text:
        return False
    if any(unicodedata.category(c) == "Cc" for c in text):
        return False
    return len(text.encode()) <= LONGEST_NAME


def lmq_applies(topic: str, properties: dict[str, str], broker_version: str) -> bool:
    """Whether the broker would dispatch this record to LMQs at all; 4.9 does not look at the topic."""
    if broker_version != "4.9" and (topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC):
        return False
    names, offsets = properties.get("INNER_MULTI_DISPATCH"), properties.get("INNER_MULTI_QUEUE_OFFSET")
    return not (java.is_blank(names) or java.is_blank(offsets))


def lmq_targets(properties: dict[str, str], queue_id: int) -> tuple[list[tuple[str, int, int]], list[str]]:
    """([(name, queue id, queue offset)], warnings) of a record that is dispatched to LMQs.

    Unequal counts, or any offset that is no usable number, leave the record without LMQ units; a name with
    `/`, and any other that is no plain file name, is left out alone.
    """
    names = java.split(properties["INNER_MULTI_DISPATCH"], ",")
    texts = java.split(properties["INNER_MULTI_QUEUE_OFFSET"], ",")
    if len(names) != len(texts):
        return [], ["LMQ lists are not equally long"]
    offsets = [java.parse_number(text, 64) for text in texts]
    if any(o is None or not 0 <= o <= HIGHEST_QUEUE_OFFSET for o in offsets):
        return [], ["an LMQ offset is not a usable number"]
    targets: list[tuple[str, int, int]] = []
    warnings: list[str] = []
    for name, offset in zip(names, offsets, strict=True):
        if "/" in name:
            warnings.append("an LMQ name holds a slash")
        elif not is_plain_component(name):
            warnings.append("an LMQ name is no file name")
        elif offset is not None:
            targets.append((name, 0 if name.startswith(LMQ_PREFIX) else queue_id, offset))
    return targets, warnings
