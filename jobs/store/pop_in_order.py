"""What groups that consume in order have taken by POP: ``config/consumerOrderInfo.json``, the broker's only note of it.

Such a group has one batch of messages of a queue at a time. The log has neither check points nor acknowledgements of it
(``PopMessageProcessor`` of 5.x writes them for other groups alone).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.consumer_offsets import QueueOfGroup, as_offset
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import CONFIG
from rocketmq_reindex.storage_format.showing import escape, reason
from rocketmq_reindex.storage_format.text import java_string

FILE: Final = "consumerOrderInfo.json"
"""``BrokerPathConfigHelper.getConsumerOrderInfoPath``"""
_BYTES_MAX: Final = 256 << 20


class OrderedMessage(NamedTuple):
    """A message of the newest batch that a group took of a queue. Times are milliseconds since 1970.

    ``until`` is when others may have it, None where the file does not say so; ``times`` is how often the group took it before.
    """

    offset: int
    pop_time: int
    until: int | None
    times: int
    is_acknowledged: bool


def of_store(store: str, notes: Notes) -> tuple[str, dict[QueueOfGroup, list[OrderedMessage]]]:
    """Return the name of a store's file below it, and what groups have taken in order. What is wrong in it is a note.

    A broker reads the copy FILE.bak where the file itself is not there, cut short, or no such file (``ConfigManager.load``).
    """
    for name in (FILE, f"{FILE}.bak"):
        path = files.join(store, CONFIG, name)
        try:
            if files.entry_of(path).kind == files.ABSENT:
                continue
            said = java_string.loads(files.read_bytes(path, _BYTES_MAX).decode("utf-8", "replace"))
        except (OSError, InputError, ValueError, RecursionError) as error:
            notes.add("what was taken in order", f"{escape(path)}: {reason(error)}", lost=False)
            continue
        table = said.get("table") if isinstance(said, dict) else None
        if isinstance(table, dict):
            return f"{CONFIG}/{name}", dict(_batches(table, path, notes))
        notes.add("what was taken in order", f"{escape(path)}: does not say what groups have taken in order", lost=False)
    return f"{CONFIG}/{FILE}", {}


def _batches(table: dict[str, Any], path: str, notes: Notes) -> Iterator[tuple[QueueOfGroup, list[OrderedMessage]]]:
    for name, queues in table.items():
        topic, _, group = name.partition("@")
        for queue, batch in queues.items() if isinstance(queues, dict) else [("", None)]:
            queue_id, messages = as_offset(queue), None if batch is None else _messages(batch)
            if queue_id is None or messages is None or not group:
                text = f"{escape(path)}: {escape(name)}: has what is no batch of a queue: it is passed over"
                notes.add("a batch in order", text, lost=False)
            else:
                yield QueueOfGroup(group, topic, queue_id), messages


def _messages(batch: object) -> list[OrderedMessage] | None:
    """Return the messages of a batch (``ConsumerOrderInfoManager.OrderInfo``); None for what is none.

    Of its offsets all but the first are distances to the first. Bit i of ``cm`` is set when message i is acknowledged.
    """
    if not isinstance(batch, dict) or not isinstance(distances := batch.get("o"), list):
        return None
    numbers = [as_offset(distance) for distance in distances]
    pop_time, bits = as_offset(batch.get("popTime")), as_offset(batch.get("cm", 0))
    if pop_time is None or bits is None or None in numbers:
        return None
    offsets = [number for number in numbers if number is not None]
    offsets[1:] = [offsets[0] + distance for distance in offsets[1:]]
    hidden = as_offset(batch.get("i"))
    ends, times = _by_offset(batch.get("ot")), _by_offset(batch.get("oc"))
    usual = pop_time + hidden if hidden is not None and hidden > 0 else None
    return [
        # 1L << i of Java takes the last six bits of i.
        OrderedMessage(offset, pop_time, ends.get(offset, usual), times.get(offset, 0), bool(bits >> i % 64 & 1))
        for i, offset in enumerate(offsets)
    ]


def _by_offset(said: object) -> dict[int, int]:
    pairs = said.items() if isinstance(said, dict) else ()
    numbers = ((as_offset(offset), as_offset(value)) for offset, value in pairs)
    return {offset: value for offset, value in numbers if offset is not None and value is not None}
