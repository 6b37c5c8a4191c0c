"""The records of a store that belong to a message: by the index or a scan, and in queues of the broker's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.querying.search import RECORDS_MAX, Search
from rocketmq_reindex.jobs.querying.shown import told_body
from rocketmq_reindex.jobs.store.contents import BEYOND, FILLER, NOTHING, RecordWalk, last_record, written
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueue
from rocketmq_reindex.jobs.tracing.timeline import Trace, TracedStore
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import INT32_MAX, QUEUES
from rocketmq_reindex.storage_format.queue.units import UNIT, Unit
from rocketmq_reindex.storage_format.record import meaning as m
from rocketmq_reindex.storage_format.record.layout import PopRecord, op_offsets, pop_record
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import (
    DISCARD_TOPIC,
    LMQ_PREFIX,
    OP_TAG,
    OP_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    WAITING_TOPICS,
    path_component,
)

_OWN_TOPICS: Final = frozenset({*WAITING_TOPICS, DISCARD_TOPIC})
"""Messages of any topic may lie there."""


class Belonging(NamedTuple):
    """A record that has the message's unique key, and what it means."""

    record: Message
    meant: m.Meaning

    @property
    def kind(self) -> str:
        """The kind of the record."""
        return self.meant.kind

    @property
    def is_at_clients(self) -> bool:
        """Whether it was stored where consumers read."""
        return self.kind in (m.MESSAGE, m.RETRY, m.DEAD_LETTER)

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue and queue offset of the record."""
        return self.record.topic, self.record.queue_id, self.record.queue_offset

    @property
    def is_recall(self) -> bool:
        """Whether it takes a waiting message back: it may have that one's unique key (``RecallMessageProcessor``)."""
        return self.kind == m.TIMER and "recalls" in self.meant.details


class OwnRecords(NamedTuple):
    """What queues of the broker's own hold of the messages that are traced."""

    pops: list[tuple[Message, PopRecord]]
    recalls: list[Message]


class StoreTracer:
    """Looks for messages in one store. Raises InputError for what is no store.

    At most ``slots_max`` slots of a queue of the broker's own are looked at, if given; a note says so.
    """

    def __init__(
        self, store: TracedStore, asked: Trace, notes: Notes, progress: ProgressListener, slots_max: int | None = None
    ) -> None:
        self.store, self._asked, self.notes, self._slots_max = store, asked, notes, slots_max
        self.search = Search(store.path, store.roots, notes, scan=asked.scan, progress=progress)
        known = set(self.search.queues.topics())
        if asked.scan:
            known |= self.search.scan_for(filter(None, (asked.key, asked.id, asked.unique_key)))
        self._by_unique_key: dict[str, list[Belonging]] = {}
        # No record has the name of an LMQ as its topic. A name of the log may be no name of a folder.
        self._topics = sorted(name for name in known if path_component(name) and not name.startswith(LMQ_PREFIX))

    def check(self) -> None:
        """Raise InputError where it cannot know where to look."""
        if not self._topics and not self._asked.scan and not self._is_empty:
            if self.search.queues.unread:
                raise InputError(f"{self.search.queues.unread}, or add --scan to read the whole log instead")
            folder = escape(files.join(self.store.path, QUEUES))
            raise InputError(
                f"{folder}: holds no queue, and the index has keys by topic alone: add --scan to read the whole log instead"
            )

    @cached_property
    def _is_empty(self) -> bool:
        """Return whether the log has nothing yet, as that of a broker that nobody has sent to: a scan finds that out itself."""
        log = self.search.log
        if self._asked.scan or log.message(log.start) not in (NOTHING, BEYOND):
            return False
        return not any(written(log, segment) for segment in log.segments)

    # -- by key -------------------------------------------------------------------------------------------------------

    def asked_for(self) -> list[Message]:
        """Return the records that the question names: where it names a topic, too, those of it, also those that wait."""
        asked = self._asked
        found = [] if self._is_empty else self._named()
        if asked.topic is None or asked.key is not None or asked.queue is not None:
            return found
        of_topic = [record for record in found if self._is_of(record, asked.topic)]
        if found and not of_topic:
            self.search.say_other_topic(found[0], asked.topic)
        return of_topic

    def _named(self) -> list[Message]:
        asked = self._asked
        if asked.key is not None:
            assert asked.topic is not None
            return self._with_key(asked.topic, asked.key)
        if asked.id is not None:
            # Where a broker's id says, another store has another message.
            found = self._with_unindexed(self.search.by_id(asked.id, None), lambda record: record.unique_key == asked.id)
            return [record for record in found if asked.id in (record.unique_key, record.message_id, record.message_id.lower())]
        if asked.unique_key is not None:
            return [each.record for each in self.with_unique_key(asked.unique_key)]
        if asked.queue is not None:
            assert asked.topic is not None
            return [served.message for served in self.search.by_queue(asked.topic, asked.queue, asked.queue_offset)]
        assert asked.physical is not None
        return list(self.search.by_phy_offset(asked.physical))

    def look_ahead(self, unique_keys: Iterable[str | None]) -> None:
        """Look for several messages in one pass over the log, where it is read for them."""
        if self._asked.scan:
            self.search.scan_for(filter(None, unique_keys))

    def _with_key(self, topic: str, key: str) -> list[Message]:
        """Return the records of a topic that have a key, also where they wait, come again, or are dead letters."""
        again = [name for name in self._topics if m.kind_of(name) in (m.RETRY, m.DEAD_LETTER)]
        names = sorted({topic, *_OWN_TOPICS, *again})
        found = self._with_unindexed(self.search.with_key(names, key), lambda record: record.has_key(record.topic, key))
        return [record for record in found if self._is_of(record, topic)]

    def _is_of(self, record: Message, topic: str) -> bool:
        return topic in (record.topic, self.belonging(record).meant.place.topic) or m.pop_group(record.topic, topic) is not None

    def _with_unindexed(self, found: Iterable[Message], matches: Callable[[Message], bool]) -> list[Message]:
        """Return the records that were found, and those that no index covers and that match, in the order of the log."""
        by_place = {record.phy_offset: record for record in (*found, *filter(matches, self._unindexed))}
        return [by_place[at] for at in sorted(by_place)]

    def with_unique_key(self, unique_key: str) -> list[Belonging]:
        """Return all records that have a unique key, of any topic, in the order of the log."""
        if unique_key not in self._by_unique_key:
            self._by_unique_key[unique_key] = self._searched(unique_key)
        return self._by_unique_key[unique_key]

    def _searched(self, unique_key: str) -> list[Belonging]:
        found: dict[int, Belonging] = {}
        if self._is_empty:
            return []
        names, searched = {*self._topics, *_OWN_TOPICS}, set[str]()
        while names - searched:
            # The index has keys by topic: a record may name one that has no queue here any more.
            asked = None if self._asked.scan else sorted(names - searched)
            searched |= names
            records = self.search.by_unique_key(unique_key, asked)
            for record in self._with_unindexed(records, lambda record: record.unique_key == unique_key):
                if record.phy_offset not in found:
                    found[record.phy_offset] = self.belonging(record)
            if not self._asked.scan:
                names |= {topic for each in found.values() if (topic := each.meant.place.topic)}
        return [found[at] for at in sorted(found)]

    def belonging(self, record: Message) -> Belonging:
        """Return a record with its meaning."""
        meant = m.meaning(record, self._body(record), self._asked.delays)
        if meant.kind == m.SCHEDULED and (unit := self.unit_of(record)) is not None and unit.phy_offset == record.phy_offset:
            # The broker has put the time by its own levels into the unit (CommitLog.checkMessageAndReturnSize).
            place = meant.place._replace(deliver_time=unit.tags_code)
            meant = dataclasses.replace(meant, place=place)
        return Belonging(record, meant)

    def _body(self, record: Message) -> bytes:
        return told_body(record, lambda size: self.search.log.body(record, size))

    # -- how much of the log that is ----------------------------------------------------------------------------------

    @cached_property
    def is_covered(self) -> bool:
        """Whether each record of the log with a key was looked at: by a scan, or by the index and what it does not have."""
        _ = self._unindexed
        return self._covered

    @cached_property
    def _unindexed(self) -> list[Message]:
        """The records that no IndexFile covers, if they are few; else it is noted that there are more."""
        self._covered = True
        if self._asked.scan:
            return []
        log, low, found = self.search.log, self.search.log.start, list[Message]()
        headers = sorted((file.header for file in self.search.index.files), key=lambda header: header.begin_place)
        for begin, end in [*((header.begin_place, header.end_place) for header in headers), (log.end, log.end)]:
            if begin > low:
                self._covered &= self._walk(low, begin, found)
            low = max(low, end)
        if not self._covered:
            self.notes.add(
                "records without an index",
                f"{escape(self.store.path)}: the index does not cover the whole log: what it lacks is not found: add --scan",
            )
        return found

    def _walk(self, low: int, high: int, found: list[Message]) -> bool:
        """Add the records of a part of the log. Return whether these were all."""
        log = self.search.log
        walk = RecordWalk(log, low, high, RECORDS_MAX - len(found))
        found.extend(walk)
        return walk.at >= high or (walk.stop == NOTHING and high == log.end)

    @cached_property
    def end_time(self) -> int | None:
        """The store time of the log's last record; None where damage may hide which that is."""
        last = last_record(self.search.log)
        behind = None if last is None else self.search.log.message(last.phy_offset + last.size)
        return last.store_time if last is not None and behind in (NOTHING, FILLER, BEYOND) else None

    # -- queues -------------------------------------------------------------------------------------------------------

    def _opened(self, topic: str, queue_id: int, notes: Notes) -> StoreQueue | None:
        queue = self.search.queues.open(topic, queue_id, self.search.log, notes)
        if queue is not None:
            queue.units.left = self._slots_max
        return queue

    def unit_of(self, record: Message) -> Unit | None:
        """Return the unit at a record's place in its queue; None where the queue has none there, or no files."""
        return self.unit_at(record.topic, record.queue_id, record.queue_offset)

    def unit_at(self, topic: str, queue_id: int, offset: int) -> Unit | None:
        """Return the unit at an offset of a queue, a light one, too; None where the queue has none there, or no files."""
        queue = self._opened(topic, queue_id, Notes.silent())
        if queue is None:
            return None
        unit = queue.units.at(queue.units.find(offset))
        queue.close()
        return unit if unit.kind == UNIT else None

    def _records_of(self, topic: str, queue_id: int, since: int, notes: Notes) -> Iterator[Message]:
        queue = self._opened(topic, queue_id, notes)
        if queue is not None:
            try:
                position = queue.units.first_where(lambda unit: unit.phy_offset >= since)
                yield from (served.message for served in queue.from_position(position))
            except InputError as error:
                if self._slots_max is None:
                    raise
                notes.add("slots", f"not all of it was looked at: {error}")
            finally:
                queue.close()
        elif self._asked.scan and topic not in self._topics:
            # The log has none of its records.
            return
        elif self._asked.scan:
            served = self.search.by_queue(topic, queue_id, offset=0, count_max=INT32_MAX)
            yield from (found.message for found in served if found.message.phy_offset >= since)
        else:
            notes.add("no files", "its ConsumeQueue has no files: add --scan to read the log instead")

    def own_records(self, belonging: Sequence[Belonging]) -> OwnRecords:
        """Return records of POP that may speak of these ones, and the marks that take messages back from the timer."""
        since = min((each.record.phy_offset for each in belonging), default=0)
        places = {each.place for each in belonging if each.is_at_clients}
        taken = [topic for topic in self._topics if m.kind_of(topic) == m.POP] if places else []
        revive = [(topic, number) for topic in taken for number in self.search.queues.ids(topic)]
        timed = revive or any(each.kind == m.TIMER for each in belonging)
        timers = [(TIMER_TOPIC, 0)] if timed and TIMER_TOPIC in self._topics else []
        topics_asked = [topic.encode() for topic, _, _ in places]
        pops: dict[tuple[str | None, bytes], tuple[Message, PopRecord]] = {}
        recalls: dict[str, Message] = {}
        # A check point waits in the timer topic first: there it has the time at which the message was taken.
        for record in self._each_of((*timers, *revive), since):
            mark = record.properties.get("TIMER_DEL_UNIQKEY")
            if mark is not None and record.topic == TIMER_TOPIC:
                # One that rolls on is stored again.
                recalls.setdefault(f"{record.unique_key}\x01{mark}\x01{record.born_time}", record)
            elif m.POP in (m.kind_of(record.topic), m.kind_of(record.properties.get("REAL_TOPIC", ""))):
                body = self._body(record)
                said = pop_record(body, record.tags) if any(topic in body for topic in topics_asked) else None
                if said and any((said.topic, said.queue_id, offset) in places for offset in said.offsets):
                    pops.setdefault((record.tags, body), (record, said))
        return OwnRecords(sorted(pops.values(), key=lambda pop: pop[0].phy_offset), list(recalls.values()))

    def _each_of(self, queues: Iterable[tuple[str, int]], since: int) -> Iterator[Message]:
        """Yield the records of several queues; what could not be read of one is a note."""
        for topic, queue_id in queues:
            notes = Notes.silent()
            yield from self._records_of(topic, queue_id, since, notes)
            self._note(topic, queue_id, notes)

    def _note(self, topic: str, queue_id: int, notes: Notes) -> None:
        if notes.lost:
            self.notes.add("queues of the broker's own", f"{escape(topic)}/{queue_id}: {notes.lost}")

    def op_of(self, half: Message, offsets: set[int]) -> tuple[Message | None, bool]:
        """Return the op message behind a half message that names one of some offsets in its queue, or None.

        And whether nothing that may be one was left out.
        """
        notes = Notes.silent()
        for record in self._records_of(OP_TOPIC, half.queue_id, half.phy_offset, notes):
            if record.tags == OP_TAG and not offsets.isdisjoint(op_offsets(self._body(record))):
                return record, True
        self._note(OP_TOPIC, half.queue_id, notes)
        return None, not notes.lost

    def traces(self, unique_key: str) -> Iterator[tuple[Message, dict[str, object]]]:
        """Yield what clients wrote of a message into the trace topics."""
        names = [topic for topic in {*self._topics, TRACE_TOPIC} if m.kind_of(topic) == m.TRACE]
        records = [] if self._is_empty else self._with_unindexed(
            self.search.with_key(sorted(names), unique_key),
            lambda record: record.topic in names and record.has_key(record.topic, unique_key),
        )  # fmt: skip
        for record in records:
            for trace in self.belonging(record).meant.details["traces"]:
                if trace.get("msgId") == unique_key:
                    yield record, trace
