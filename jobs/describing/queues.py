"""Topics and queues, by the names and ends of their files, or by a sample of the log where there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.querying.queue import BATCH, PLAIN, StoreQueue
from rocketmq_reindex.jobs.store.folders import entries
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import queue_id
from rocketmq_reindex.storage_format.names import WAITING_TOPICS, escape
from rocketmq_reindex.storage_format.queue.lookup import UNIT, QueueUnits
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.topics import topic_names
from rocketmq_reindex.udfs import files

QUEUES_MAX: Final = 2000
"""queues that are looked into"""
SAMPLED: Final = 2000
"""records of a sample, from places that are evenly spread over the log"""
PLACES: Final = 10
_CONFIG_MAX: Final = 64 << 20


@dataclass
class Queues:
    """What the queues of a store hold. ``reach`` is the byte of the log behind the last record that has a unit."""

    topics: list[dict[str, Any]] = field(default_factory=list)
    """``topic``, ``queues``, ``queues_looked_into``, ``messages``, ``first_time``, ``last_time``; the largest first"""
    queues: int = 0
    looked_into: int = 0
    messages: int = 0
    reach: int = 0
    names: frozenset[str] = frozenset()
    """the topics that have a queue"""
    sampled: int = 0
    """records of the log that were looked at, where no queue has a file; then ``messages`` of a topic are of these alone"""


def describe_queues(store: str, log: StoreLog, notes: Notes) -> Queues:
    """Return what the files of the queues tell; each costs a few reads at its ends."""
    found, held, looked, messages, times = Queues(), Counter[str](), Counter[str](), Counter[str](), Times()
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
                times.add(topic, _time(log, queue.units, queue.units.first_where(lambda one: one.phy_offset >= log.start)))
                times.add(topic, _time(log, queue.units, queue.units.end - 1))
                found.reach = max(found.reach, unit.phy_offset + unit.size if unit.kind == UNIT else 0)
        finally:
            queue.close()
        found.looked_into += 1
        looked[topic] += 1
    if not found.queues:
        _sample(log, found, held, messages, times)
    found.messages, found.names = messages.total(), frozenset(held)
    found.topics = [
        {
            "topic": escape(topic),
            "queues": held[topic],
            "queues_looked_into": looked[topic],
            "messages": messages[topic],
            "first_time": times.shown(topic, 0),
            "last_time": times.shown(topic, 1),
        }
        for topic in sorted(held, key=lambda topic: (-messages[topic], topic))
    ]
    return found


class Times:
    """The first and the last store time that was seen of each topic."""

    def __init__(self) -> None:
        self._spans = dict[str, tuple[int, int]]()

    def add(self, topic: str, time: int | None) -> None:
        """A record of the topic was stored at ``time``; None: not known."""
        if time is not None:
            first, last = self._spans.get(topic, (time, time))
            self._spans[topic] = min(first, time), max(last, time)

    def shown(self, topic: str, end: int) -> str | None:
        """The first (``end`` 0) or the last time (1) as people read it; None where no record was seen."""
        span = self._spans.get(topic)
        return show_time(span[end]) if span else None


def _time(log: StoreLog, units: QueueUnits, position: int) -> int | None:
    unit = units.at(position) if position < units.end else None
    message = log.message(unit.phy_offset) if unit is not None and unit.kind == UNIT else None
    return message.store_time if isinstance(message, Message) else None


def _folders(store: str, notes: Notes) -> Iterator[tuple[str, str, bool]]:
    """Yields (topic, folder, whether of batch ConsumeQueue files) of each queue."""
    for kind in (PLAIN, BATCH):
        for topic in entries(files.join(store, kind), notes) or []:
            if topic.kind == files.FOLDER:
                for queue in entries(topic.path, notes) or []:
                    if queue.kind == files.FOLDER and queue_id(queue.name) is not None:
                        yield topic.name, queue.path, kind == BATCH


def _sample(log: StoreLog, found: Queues, held: Counter[str], messages: Counter[str], times: Times) -> None:
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
            times.add(message.topic, message.store_time)
            seen.add((message.topic, message.queue_id))
            at += message.size
    for topic, _ in seen:
        held[topic] += 1
    found.queues = len(seen)


def sampled_topics(log: StoreLog) -> frozenset[str]:
    """Return the topics of a sample of the log."""
    held = Counter[str]()
    _sample(log, Queues(), held, Counter(), Times())
    return frozenset(held)


@dataclass
class Undispatched:
    """Records behind the last one that has a unit. A prepared or rolled-back one gets none, and does not count."""

    lacking: int = 0
    """of topics that have a queue, or are in config/topics.json"""
    deleted: int = 0
    """of other topics: these were deleted with their queues, if that file is there, or their files may be lost"""
    topics: set[str] = field(default_factory=set)
    """those other topics"""


def undispatched(log: StoreLog, reach: int, known: Collection[str], most: int = 1000) -> Undispatched:
    """Return what lacks a unit from ``reach`` on, of the next ``most`` records; those of ``known`` topics should have one."""
    found, at = Undispatched(), max(reach, log.start)
    for _ in range(most):
        message = log.message(at)
        if not isinstance(message, Message):
            break
        at += message.size
        if message.sys_flag & r.FLAG_TRANSACTION_MASK in (r.TRANSACTION_PREPARED, r.TRANSACTION_ROLLBACK):
            continue
        if message.topic in known or message.topic in WAITING_TOPICS:
            found.lacking += 1
        else:
            found.deleted += 1
            found.topics.add(message.topic)
    return found


def configured(store: str) -> frozenset[str] | None:
    """Return the topics of STORE/config/topics.json; None where it cannot be read."""
    path = files.join(store, "config", "topics.json")
    try:
        return topic_names(files.read_bytes(path, _CONFIG_MAX).decode("utf-8", "surrogateescape"))
    except (OSError, InputError, ValueError, RecursionError):
        return None
