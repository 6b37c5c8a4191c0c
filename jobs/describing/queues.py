"""Describe the log, the topics and the queues of a store: by names and ends of files, or by a sample of the log."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents, folders
from rocketmq_reindex.jobs.store.queue import StoreQueues
from rocketmq_reindex.storage_format import errors, layouts, showing, topics as storage_format_topics
from rocketmq_reindex.storage_format.queue.units import UNIT, QueueUnits
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs.times import show_time

# --------------------------------------------------------------------------------------------------------------------- log span
# Where a log begins and ends, by its segments' names, its first record, and its last one.

_LISTED: Final = 3


def describe_log(log: contents.StoreLog, problems: list[str], elsewhere: bool = False) -> dict[str, Any]:
    """Return what is known of the log, and add to ``problems`` what is missing or damaged. A log ``elsewhere`` is not."""
    segments = log.segments
    sizes = Counter(segment.size for segment in segments)
    facts: dict[str, Any] = {
        "segments": len(segments), "bytes": sum(segment.size for segment in segments),
        "segment_size": sizes.most_common(1)[0][0] if sizes else 0, "first_offset": log.start, "end_offset": log.start,
        "first_time": None, "last_time": None, "missing": 0, "elsewhere": elsewhere,
    }  # fmt: skip
    if not segments:
        problems += [] if elsewhere else ["commitlog: has no segment"]
        return facts
    _add_missing(facts, segments, problems)
    first, last = log.message(log.start), contents.last_record(log)
    if isinstance(first, Message):
        facts["first_time"] = show_time(first.store_time)
    elif not _is_blank(log, segments[0]):
        path = segments[0].path
        problems.append((last is None and foreign(segments[0])) or f"{showing.escape(path)}: its first record: {first}")
    if last is not None:
        facts["end_offset"], facts["last_time"] = last.phy_offset + last.size, show_time(last.store_time)
    return facts


def misnamed(log: contents.StoreLog) -> tuple[contents.SegmentFile, int] | None:
    """Return a segment whose first record says that the segment begins elsewhere, and where; None for none.

    Looked at are the first segment, and those beside a gap: a wrong name leaves one behind.
    """
    pairs = [pair for pair in itertools.pairwise(log.segments) if pair[1].start != pair[0].start + pair[0].size]
    segments = dict.fromkeys((*log.segments[:1], *itertools.chain(*reversed(pairs[:_LISTED]))))
    return next(((segment, told) for segment in segments if (told := _told_start(log, segment)) is not None), None)


def _told_start(log: contents.StoreLog, segment: contents.SegmentFile) -> int | None:
    """Return where a segment begins by its first two records, if that is not where its name says."""
    try:
        pages = log.pages(segment)
        told = int.from_bytes(pages.read(segment.lead + r.AT_PHYSICAL_OFFSET, 8), "big", signed=True) - segment.lead
        first = contents.message_at(pages, told, told, segment.lead) if told >= 0 else r.ZERO
        # One record alone may have a damaged field: the second says the same.
        elsewhere = told != segment.start and isinstance(first, Message) and _goes_on(pages, told, first, segment.lead)
    except (OSError, errors.InputError):
        # It is told where the segment is read for its contents.
        return None
    return told if elsewhere else None


def _goes_on(pages: files.Pages, start: int, first: Message, lead: int) -> bool:
    """Return whether a record or a BLANK lies behind the first one of a segment that would begin at ``start``."""
    following = contents.message_at(pages, start, first.phy_offset + first.size, lead)
    return isinstance(following, Message) or following == r.FILLER


def foreign(segment: contents.SegmentFile) -> str:
    """Return that a segment is none of RocketMQ; "" for one that begins with a record, or that cannot be read."""
    try:
        return folders.no_record(segment.path, segment.lead)
    except (OSError, errors.InputError):
        return ""


def _is_blank(log: contents.StoreLog, segment: contents.SegmentFile) -> bool:
    """Return whether a segment begins with zeros, as one does that a broker has just made. What cannot be read does not."""
    try:
        return not any(log.pages(segment).read(0, contents.BLOCK))
    except (OSError, errors.InputError):
        return False


def _add_missing(facts: dict[str, Any], segments: list[contents.SegmentFile], problems: list[str]) -> None:
    holes = []
    for segment, following in itertools.pairwise(segments):
        if following.start > segment.start + segment.size:
            holes.append((segment.start + segment.size, following.start))
        if following.start < segment.start + segment.size:
            problems.append(f"{showing.escape(following.path)}: begins inside of the segment before it")
    facts["missing"] = sum(end - begin for begin, end in holes)
    if holes:
        listed = ", ".join(f"{begin} to {end}" for begin, end in holes[:_LISTED]) + (", ..." if len(holes) > _LISTED else "")
        problems.append(f"commitlog: {showing.counted(facts['missing'], 'byte')} of the log are in no file: {listed}")


# ----------------------------------------------------------------------------------------------------------------------- queues
# Topics and queues, by the names and ends of their files, or by a sample of the log where there are none.

QUEUES_MAX: Final = 2000
"""queues that are looked into"""
SAMPLED: Final = 2000
"""records of a sample, from places that are evenly spread over the log"""
PLACES: Final = 10


@dataclass
class QueueContents:
    """What the queues of a store hold. ``reach`` is the byte of the log behind the last record that has a unit, which begins
    at ``last``.
    """

    topics: list[dict[str, Any]] = field(default_factory=list)
    """``topic``, ``queues``, ``queues_looked_into``, ``messages``, ``first_time``, ``last_time``; the largest first"""
    queues: int = 0
    looked_into: int = 0
    unlisted: int = 0
    """light queues that were not looked into, nor listed"""
    messages: int = 0
    reach: int = 0
    last: int = -1
    folder: str = layouts.QUEUES
    """the folder of queues in which that unit stands"""
    names: frozenset[str] = frozenset()
    """the topics that have a queue, but light ones that are not listed"""
    unread: str = ""
    """why there are queues in RocksDB that cannot be read"""
    broken: bool = False
    """whether RocksDB cannot read its queues: they are to be built"""
    sampled: int = 0
    """records of the log that were looked at, where no queue has a file; then ``messages`` of a topic are of these alone"""


def describe_queues(store: str, log: contents.StoreLog, notes: folders.Notes) -> QueueContents:
    """Return what the queues tell; each costs a few reads at its ends."""
    with contextlib.closing(StoreQueues(store, notes)) as all_queues:
        try:
            return _describe(all_queues, log, notes)
        except errors.InputError as error:
            # It brings numpy.
            from rocketmq_reindex.udfs.queue_database import BUILD_AGAIN

            broken = str(error)
            if not broken.endswith(BUILD_AGAIN):
                raise
    # RocksDB has opened its files, and met a broken block in one.
    broken = broken.removesuffix(BUILD_AGAIN)
    with contextlib.closing(StoreQueues(store, notes, database=False)) as in_files:
        found = _describe(in_files, log, notes)
    found.broken = True
    if found.looked_into:
        notes.add("queues in RocksDB", f"{broken}: the ConsumeQueue files beside it are read", lost=False)
    else:
        found.unread = broken
    return found


def _describe(all_queues: StoreQueues, log: contents.StoreLog, notes: folders.Notes) -> QueueContents:
    queues, held, looked, messages, times = QueueContents(), Counter[str](), Counter[str](), Counter[str](), TopicTimes()
    queues.unread, queues.broken = all_queues.unread, all_queues.broken
    for topic, number in all_queues.each():
        queues.queues += 1
        if queues.looked_into >= QUEUES_MAX and topic.startswith(storage_format_topics.LMQ_PREFIX):
            # There may be millions of them.
            queues.unlisted += 1
            continue
        held[topic] += 1
        if queues.looked_into >= QUEUES_MAX:
            continue
        queue = all_queues.open(topic, number, log, notes)
        if queue is None:
            queues.looked_into += 1
            looked[topic] += 1
            continue
        try:
            span, unit = queue.span(), queue.last_unit()
            if span is not None and unit is not None:
                messages[topic] += span.end - span.first
                times.add(topic, _time(log, queue.units, queue.units.first_where(lambda unit: unit.phy_offset >= log.start)))
                times.add(topic, _time(log, queue.units, queue.units.end - 1))
                if unit.kind == UNIT and unit.phy_offset + unit.size > queues.reach:
                    queues.reach, queues.last = unit.phy_offset + unit.size, unit.phy_offset
                    queues.folder = queue.part
        finally:
            queue.close()
        queues.looked_into += 1
        looked[topic] += 1
    if not queues.queues:
        _sample(log, queues, held, messages, times)
    queues.messages, queues.names = messages.total(), frozenset(held)
    queues.topics = [
        {
            "topic": showing.escape(topic),
            "queues": held[topic],
            "queues_looked_into": looked[topic],
            "messages": messages[topic],
            "first_time": times.shown(topic, 0),
            "last_time": times.shown(topic, 1),
        }
        for topic in sorted(held, key=lambda topic: (-messages[topic], topic))
    ]
    return queues


class TopicTimes:
    """The first and the last store time that was seen of each topic."""

    def __init__(self) -> None:
        self._spans = dict[str, tuple[int, int]]()

    def add(self, topic: str, time: int | None) -> None:
        """A record of the topic was stored at ``time``; None: not known."""
        if time is not None:
            first, last = self._spans.get(topic, (time, time))
            self._spans[topic] = min(first, time), max(last, time)

    def shown(self, topic: str, end: int) -> str | None:
        """Return the first (``end`` 0) or the last time (1) as people read it; None where no record was seen."""
        span = self._spans.get(topic)
        return show_time(span[end]) if span else None


def _time(log: contents.StoreLog, units: QueueUnits, position: int) -> int | None:
    unit = units.at(position) if position < units.end else None
    message = log.message(unit.phy_offset) if unit is not None and unit.kind == UNIT else None
    return message.store_time if isinstance(message, Message) else None


def _sample(
    log: contents.StoreLog, queues_found: QueueContents, held: Counter[str], messages: Counter[str], times: TopicTimes
) -> None:
    keys = set[tuple[str, int]]()
    count = len(log.segments)
    for number in sorted({place * count // PLACES for place in range(PLACES)} if count else ()):
        at = log.segments[number].start
        for _ in range(SAMPLED // PLACES):
            message = log.message(at)
            if not isinstance(message, Message):
                break
            queues_found.sampled += 1
            messages[message.topic] += 1
            times.add(message.topic, message.store_time)
            keys.add((message.topic, message.queue_id))
            at = message.phy_offset + message.size
    for topic, _ in keys:
        held[topic] += 1
    queues_found.queues = len(keys)


def sampled_topics(log: contents.StoreLog) -> frozenset[str]:
    """Return the topics of a sample of the log."""
    held = Counter[str]()
    _sample(log, QueueContents(), held, Counter(), TopicTimes())
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

    def problem(self, queues: QueueContents, unsure: bool) -> str:
        """Return what to say of them; "" for nothing. ``unsure``: nothing says which topics there should be."""
        if self.lacking:
            return (
                f"{queues.folder}/: its last unit is of the record that ends at {queues.reach}; "
                f"{showing.counted(self.lacking, 'record')} behind it, or more, have none"
            )
        if not (self.deleted and unsure):
            return ""
        topics = ", ".join(map(showing.escape, sorted(self.topics)[:_LISTED]))
        deleted = showing.counted(self.deleted, "record") + (" is" if self.deleted == 1 else " are")
        return (
            f"{queues.folder}/: behind {queues.reach} {deleted} of topics without a queue ({topics}): if nobody deleted "
            "these, a build makes their queues again"
        )


def undispatched(log: contents.StoreLog, reach: int, known: Collection[str], records_max: int = 1000) -> Undispatched:
    """Return what lacks a unit from ``reach`` on, of the next ``records_max`` records; those of ``known`` topics should have
    one."""
    behind, at = Undispatched(), max(reach, log.start)
    for _ in range(records_max):
        message = log.message(at)
        if not isinstance(message, Message):
            break
        at = message.phy_offset + message.size
        if message.sys_flag & r.FLAG_TRANSACTION_MASK in (r.TRANSACTION_PREPARED, r.TRANSACTION_ROLLBACK):
            continue
        if message.topic in known or message.topic in storage_format_topics.WAITING_TOPICS:
            behind.lacking += 1
        else:
            behind.deleted += 1
            behind.topics.add(message.topic)
    return behind
