"""Topics and queues, by the names and ends of their files, or by a sample of the log where there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.querying.queue import BATCH, PLAIN, StoreQueue
from rocketmq_reindex.jobs.store.folders import entries
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.file_names import queue_id
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.lookup import UNIT
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs import files

QUEUES_MAX: Final = 2000
"""queues that are looked into"""
SAMPLED: Final = 2000
"""records of a sample, from places that are evenly spread over the log"""
PLACES: Final = 10


@dataclass
class Queues:
    """What the queues of a store hold. ``reach`` is the byte of the log behind the last record that has a unit."""

    topics: list[dict[str, Any]] = field(default_factory=list)
    """``topic``, ``queues``, ``messages``; the largest first"""
    queues: int = 0
    looked_into: int = 0
    messages: int = 0
    reach: int = 0
    sampled: int = 0
    """records of the log that were looked at, where no queue has a file; then ``messages`` of a topic are of these alone"""


def describe_queues(store: str, log: StoreLog, notes: Notes) -> Queues:
    """Return what the files of the queues tell; each costs a few reads at its ends."""
    found, held, messages = Queues(), Counter[str](), Counter[str]()
    for topic, path, batch in _folders(store, notes):
        found.queues += 1
        held[topic] += 1
        if found.looked_into >= QUEUES_MAX:
            continue
        queue = StoreQueue(path, batch, log, notes)
        try:
            span = queue.span()
            if span is not None:
                messages[topic] += span.end - span.first
                unit = queue.units.at(queue.units.end - 1)
                found.reach = max(found.reach, unit.phy_offset + unit.size if unit.kind == UNIT else 0)
        finally:
            queue.close()
        found.looked_into += 1
    if not found.queues:
        _sample(log, found, held, messages)
    found.messages = messages.total()
    found.topics = [
        {"topic": escape(topic), "queues": held[topic], "messages": messages[topic]}
        for topic in sorted(held, key=lambda topic: (-messages[topic], topic))
    ]
    return found


def _folders(store: str, notes: Notes) -> Iterator[tuple[str, str, bool]]:
    """Yields (topic, folder, whether of batch ConsumeQueue files) of each queue."""
    for kind in (PLAIN, BATCH):
        for topic in entries(files.join(store, kind), notes) or []:
            if topic.kind == files.FOLDER:
                for queue in entries(topic.path, notes) or []:
                    if queue.kind == files.FOLDER and queue_id(queue.name) is not None:
                        yield topic.name, queue.path, kind == BATCH


def _sample(log: StoreLog, found: Queues, held: Counter[str], messages: Counter[str]) -> None:
    seen = set[tuple[str, int]]()
    count = len(log.segments)
    for number in sorted({place * count // PLACES for place in range(PLACES)} if count else ()):
        at = log.segments[number].start
        for _ in range(SAMPLED // PLACES):
            message = log.message(at)
            if not isinstance(message, Message):
                break
            found.sampled += 1
            messages[message.topic] += 1
            seen.add((message.topic, message.queue_id))
            at += message.size
    for topic, _ in seen:
        held[topic] += 1
    found.queues = len(seen)


def undispatched(log: StoreLog, reach: int, most: int = 1000) -> int:
    """Return how many records from ``reach`` on lack a unit, of the next ``most``. A prepared or rolled-back one gets none."""
    count, at = 0, max(reach, log.start)
    for _ in range(most):
        message = log.message(at)
        if not isinstance(message, Message):
            break
        kind = message.sys_flag & r.FLAG_TRANSACTION_MASK
        count += kind not in (r.TRANSACTION_PREPARED, r.TRANSACTION_ROLLBACK)
        at += message.size
    return count
