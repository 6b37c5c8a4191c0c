"""The records of a store that belong to a message, and the events that they show."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.querying.answer import host_text, meaning_row
from rocketmq_reindex.jobs.querying.bodies import told_body
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.contents import BEYOND, FILLER, NOTHING
from rocketmq_reindex.jobs.store.folders import Notes, entries
from rocketmq_reindex.jobs.store.queue import topics
from rocketmq_reindex.jobs.tracing.options import Trace, TracedStore
from rocketmq_reindex.jobs.tracing.timeline import Certainty, Event
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import INT32_MAX, QUEUES
from rocketmq_reindex.storage_format.record import meaning as m
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.record.system_bodies import CHECK_POINT_TAG, PopRecord, pop_record
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, TIMER_TOPIC
from rocketmq_reindex.udfs.times import show_time

_CHECKS: Final = "TRANSACTION_CHECK_TIMES"
_ENDS_MAX: Final = 1000
"""queues whose ends are looked at for the log's end"""
_STEPS_MAX: Final = 1_000_000
"""records that are walked from there to the log's end"""


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
        """Whether it lies where consumers read."""
        return self.kind in (m.MESSAGE, m.RETRY, m.DEAD_LETTER)


class PopPlace(NamedTuple):
    """Where a group took a message by POP."""

    group: str
    topic: str
    queue_id: int
    offset: int


class OwnQueues(NamedTuple):
    """What queues of the broker's own say of a message."""

    pops: list[tuple[Message, PopRecord]]
    recalls: list[Message]


class StoreTracer:
    """Looks for one message after another in one store. Raises InputError for what is no store."""

    def __init__(self, store: TracedStore, asked: Trace, notes: Notes, progress: ProgressListener) -> None:
        self.store, self._asked, self._notes = store, asked, notes
        self.search = Search(store.path, store.roots, notes, scan=asked.scan, progress=progress)
        self._topics = topics(store.path, notes)
        if not self._topics:
            folder = escape(files.join(store.path, QUEUES))
            if not asked.scan:
                raise InputError(
                    f"{folder}: holds no queue, and the index has keys by topic alone: add --scan to read the whole log instead"
                )
            notes.add("no queues", f"{folder}: holds no queue: what POP took is not looked for")
            self._topics = [OP_TOPIC, m.TRACE_TOPIC]

    # -- records ------------------------------------------------------------------------------------------------------

    def asked_for(self) -> list[Message]:
        """Return the records that the question names."""
        asked = self._asked
        if asked.key is not None:
            assert asked.topic is not None
            return list(self.search.by_key(asked.topic, asked.key, count_max=asked.max))
        if asked.id is not None:
            # Where a broker's id says, another store has another message.
            found = self.search.by_id(asked.id, asked.topic)
            return [record for record in found if asked.id in (record.unique_key, record.message_id, record.message_id.lower())]
        if asked.unique_key is not None:
            return list(self.search.by_unique_key(asked.unique_key, asked.topic))
        if asked.queue is not None:
            assert asked.topic is not None
            return [served.message for served in self.search.by_queue(asked.topic, asked.queue, asked.queue_offset)]
        assert asked.physical is not None
        return list(self.search.by_phy_offset(asked.physical))

    def with_unique_key(self, unique_key: str) -> list[Belonging]:
        """Return all records that have a unique key, of any topic, in the order of the log."""
        return [self.belonging(record) for record in self.search.by_unique_key(unique_key)]

    def belonging(self, record: Message) -> Belonging:
        """Return a record with its meaning."""
        return Belonging(record, m.meaning(record, self._body(record), self._asked.delays))

    def _body(self, record: Message) -> bytes:
        return told_body(record, lambda size: self.search.log.body(record, size))

    def _queue(self, topic: str, queue_id: int, since: int) -> Iterator[Message]:
        """Yield the records of one of the broker's own queues from a store time on. Raises InputError where it has no files."""
        if self._asked.scan:
            served = self.search.by_queue(topic, queue_id, time=since, count_max=INT32_MAX)
        else:
            queue = self.search.queue(topic, queue_id)
            served = queue.from_position(queue.position_at_time(since, every=False))
        yield from (found.message for found in served)

    def _records_of(self, queues: Sequence[tuple[str, int]], since: int) -> Iterator[Message]:
        """Yield the records of several queues as ``_queue`` does; one that cannot be read is a note."""
        for topic, queue_id in queues:
            yield from self._as_far_as(self._queue(topic, queue_id, since))

    def _as_far_as(self, records: Iterator[Message]) -> Iterator[Message]:
        try:
            yield from records
        except InputError as error:
            self._notes.add("a queue of the broker's own", str(error))

    def _queue_ids(self, topic: str) -> list[int]:
        folder = files.join(self.store.path, QUEUES, topic)
        return sorted(int(entry.name) for entry in entries(folder, self._notes) or [] if entry.name.isdigit())

    def own_queues(self, belonging: Sequence[Belonging], unique_key: str) -> OwnQueues:
        """Return the records of POP that speak of where the message lies, and the marks that take it back from the timer."""
        places = {
            (each.record.topic, each.record.queue_id, each.record.queue_offset) for each in belonging if each.is_at_clients
        }
        since = min((each.record.store_time for each in belonging), default=0)
        waited = any(each.kind == m.TIMER for each in belonging)
        pops: dict[tuple[str | None, str | None], tuple[Message, PopRecord]] = {}
        recalls: list[Message] = []
        revive = [(topic, queue) for topic in self._topics if m.kind_of(topic) == m.POP for queue in self._queue_ids(topic)]
        if not (places and revive) and not waited:
            return OwnQueues([], [])
        timers = [(TIMER_TOPIC, 0)] if TIMER_TOPIC in self._topics else []
        # A check point waits in the timer topic first: there it has the time at which the message was taken.
        for record in self._records_of([*timers, *revive], since):
            if record.topic == TIMER_TOPIC and record.properties.get("TIMER_DEL_UNIQKEY", "").rpartition("+")[2] == unique_key:
                recalls.append(record)
            elif m.POP in (m.kind_of(record.topic), m.kind_of(record.properties.get("REAL_TOPIC", ""))):
                said = pop_record(self._body(record), record.tags)
                if said and any((said.topic, said.queue_id, offset) in places for offset in said.offsets):
                    pops.setdefault((record.unique_key, record.tags), (record, said))
        return OwnQueues(list(pops.values()), recalls)

    def decision(self, half: Message) -> Message | None:
        """Return the op message that decides a half message; None where there is none. Raises InputError as ``by_queue``."""
        if OP_TOPIC not in self._topics:
            return None
        for record in self._queue(OP_TOPIC, half.queue_id, half.store_time):
            if half.queue_offset in self.belonging(record).meant.details.get("halfOffsets", []):
                return record
        return None

    def traces(self, unique_key: str) -> Iterator[tuple[Message, dict[str, object]]]:
        """Yield what clients wrote of a message into the trace topics."""
        for topic in self._topics:
            if m.kind_of(topic) == m.TRACE:
                for record in self.search.by_key(topic, unique_key):
                    for trace in self.belonging(record).meant.details["traces"]:
                        if trace.get("msgId") == unique_key:
                            yield record, trace

    # -- events -------------------------------------------------------------------------------------------------------

    def event(
        self, record: Message, what: str, text: str, time: int | None = None, certainty: Certainty = "seen",
        group: str | None = None,
    ) -> Event:  # fmt: skip
        """Return an event that a record shows: at its store time, unless another is given."""
        evidence = f"{escape(record.topic)}/{record.queue_id}/{record.queue_offset}"
        return Event(
            record.store_time if time is None else time,
            self.store.name,
            what,
            text,
            evidence,
            certainty,
            record.phy_offset,
            group,
        )

    def events_of(self, belonging: Sequence[Belonging]) -> Iterator[Event]:
        """Yield what the records with the message's unique key show by themselves."""
        if belonging:
            first = min((each.record for each in belonging), key=lambda record: record.phy_offset)
            yield self.event(first, "born", f"made by a client on {host_text(first.born_host)}", first.born_time)
        for number, each in enumerate(belonging):
            record, place = each.record, each.meant.place
            text = meaning_row(each.meant)["text"]
            at = f"{record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
            earlier = [before for before in belonging[:number] if _waits_for(before, record.topic)]
            if each.kind == m.MESSAGE and each.meant.origin_offset is not None:
                yield self.event(record, "committed", f"committed: stored in {at}")
            elif each.kind == m.MESSAGE:
                lights = text.removeprefix("message")
                yield self.event(
                    record, "delivered" if earlier else "stored", f"{'delivered to' if earlier else 'stored in'} {at}{lights}"
                )
            elif each.kind == m.HALF:
                checks = record.properties.get(_CHECKS)
                yield self.event(record, "checked" if checks else "half", f"{text}{f' (check {checks})' if checks else ''}")
            elif each.kind == m.RETRY:
                group = _retried_group(each, belonging)
                attempt = f"attempt {record.reconsume_times}"
                yield self.event(record, "retried", f"comes again to group {group}, {attempt}: {at}", group=group)
            elif each.kind == m.DEAD_LETTER:
                yield self.event(record, "dead letter", f"{text}: {at}", group=place.group)
            elif "recalls" not in each.meant.details:
                yield self.event(record, each.kind.replace("_", " "), text)

    def later_events(self, belonging: Sequence[Belonging], unique_key: str) -> Iterator[Event]:
        """Yield what other records show of the message, and what follows from those that are not there."""
        yield from self._transactions(belonging)
        own = self.own_queues(belonging, unique_key)
        for recall in own.recalls:
            yield self.event(recall, "recalled", f"a client takes the waiting message {unique_key} back")
        yield from self._waiting(belonging, bool(own.recalls))
        yield from self._pops(belonging, own.pops)

    def _transactions(self, belonging: Sequence[Belonging]) -> Iterator[Event]:
        halves = [each.record for each in belonging if each.kind == m.HALF]
        if not halves or any(each.kind == m.MESSAGE and each.meant.origin_offset is not None for each in belonging):
            return
        if any(each.kind == m.GIVEN_UP for each in belonging):
            return
        try:
            decided = self.decision(halves[-1])
        except InputError as error:
            self._notes.add("op messages", str(error))
            text = "not committed in this log; the op messages, which say whether it was rolled back, could not be read"
            yield dataclasses.replace(self.event(halves[-1], "undecided", text, certainty="unknown"), time=None)
            return
        if decided is not None:
            text = "rolled back: an op message names it, and the log has no committed message"
            yield self.event(decided, "rolled back", text, certainty="follows")
        else:
            text = f"neither committed nor rolled back: no op message names offset {halves[-1].queue_offset} of {HALF_TOPIC}"
            yield dataclasses.replace(self.event(halves[-1], "undecided", text, certainty="follows"), time=None)

    def _waiting(self, belonging: Sequence[Belonging], recalled: bool) -> Iterator[Event]:
        waiting = [each.record for each in belonging if each.kind in (m.SCHEDULED, m.TIMER)]
        end = self._end_time(waiting[-1]) if waiting else None
        for number, each in enumerate(belonging):
            due = each.meant.place.deliver_time
            if each.kind not in (m.SCHEDULED, m.TIMER) or "recalls" in each.meant.details:
                continue
            if any(later.record.topic == each.meant.place.topic for later in belonging[number + 1 :]) or _goes_on(
                belonging, number
            ):
                continue
            if recalled and each.kind == m.TIMER:
                yield self.event(each.record, "not delivered", "recalled before its time", due, certainty="follows")
            elif due is not None and end is not None and due > end:
                yield self.event(
                    each.record, "waits", f"still waits at the log's end ({show_time(end)})", due, certainty="follows"
                )
            else:
                yield self.event(
                    each.record, "not delivered", "was due, and the log has no copy of it", due, certainty="unknown"
                )

    def _end_time(self, record: Message) -> int | None:
        """Return the store time of the log's last record, none of which lies before ``record``. None where it is not known."""
        log = self.search.log
        queues = ((topic, queue_id) for topic in self._topics for queue_id in self._queue_ids(topic))
        for topic, queue_id in itertools.islice(queues, _ENDS_MAX):
            with contextlib.suppress(InputError):
                unit = self.search.queue(topic, queue_id).last_unit()
                served = None if unit is None else log.message(unit.phy_offset)
                if isinstance(served, Message) and served.phy_offset > record.phy_offset:
                    record = served
        at = record.phy_offset + record.size
        for _ in range(_STEPS_MAX):
            found = log.message(at)
            if isinstance(found, Message):
                record, at = found, at + found.size
            elif found == FILLER and (later := [segment.start for segment in log.segments if segment.start > at]):
                at = later[0]
            else:
                return record.store_time if found in (NOTHING, FILLER, BEYOND) else None
        return None

    def _pops(self, belonging: Sequence[Belonging], pops: list[tuple[Message, PopRecord]]) -> Iterator[Event]:
        places = {
            (each.record.topic, each.record.queue_id, each.record.queue_offset) for each in belonging if each.is_at_clients
        }
        by_place: dict[PopPlace, list[tuple[Message, PopRecord]]] = {}
        for record, said in sorted(pops, key=lambda pop: pop[0].phy_offset):
            for offset in said.offsets:
                if (said.topic, said.queue_id, offset) in places:
                    by_place.setdefault(PopPlace(said.group, said.topic, said.queue_id, offset), []).append((record, said))
        again = {each.record.topic for each in belonging if each.kind == m.RETRY}
        for place, said_of_it in by_place.items():
            # POP gives back what was taken by way of a retry topic of its own (KeyBuilder.buildPopRetryTopic).
            came_again = any(topic.startswith(f"{RETRY_PREFIX}{place.group}") and topic != place.topic for topic in again)
            yield from self._pop_events(place, said_of_it, came_again)

    def _pop_events(
        self, place: PopPlace, said_of_it: Sequence[tuple[Message, PopRecord]], came_again: bool
    ) -> Iterator[Event]:
        """Yield what a group did with a message by POP, from its check points and acknowledgements in the order of the log."""
        at, group = f"{place.topic}, queue {place.queue_id}, offset {place.offset}", place.group
        taken: list[tuple[Message, PopRecord]] = []
        acknowledged = False
        for record, said in said_of_it:
            if record.tags == CHECK_POINT_TAG:
                until = show_time(said.revive_time)
                # ChangeInvisibleTimeProcessor: a new check point of this message alone, then it acknowledges the one before.
                what = "put off" if taken else "popped"
                text = (
                    f"group {group} put {at} off until {until}"
                    if taken
                    else f"group {group} took {at} by POP, and has until {until}"
                )
                yield self.event(record, what, text, said.pop_time, group=group)
                taken.append((record, said))
            elif len(taken) < 2 or said.pop_time == taken[-1][1].pop_time:
                acknowledged = True
                yield self.event(record, "acknowledged", f"group {group} acknowledged {at}", group=group)
        if taken and not acknowledged and not came_again:
            record, said = taken[-1]
            text = f"group {group} has not acknowledged it in this log"
            yield self.event(record, "open", text, said.revive_time, certainty="unknown", group=group)


def _retried_group(each: Belonging, belonging: Sequence[Belonging]) -> str | None:
    """Return the group that gets a message again. POP names the topic behind it, and tells the topic nowhere else."""
    group = each.meant.place.group
    if group is not None and each.meant.place.topic is None:
        for other in belonging:
            if other.kind == m.MESSAGE and group.endswith(f"_{other.record.topic}"):
                return group.removesuffix(f"_{other.record.topic}")
    return group


def _waits_for(each: Belonging, topic: str) -> bool:
    return each.kind in (m.SCHEDULED, m.TIMER, m.HALF) and each.meant.place.topic == topic


def _goes_on(belonging: Sequence[Belonging], number: int) -> bool:
    """Whether a later record takes the place of one that waits: a timer that rolls on is stored again."""
    this = belonging[number]
    return any(later.kind == this.kind and later.meant.place == this.meant.place for later in belonging[number + 1 :])
