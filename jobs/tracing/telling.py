"""The events of a message, from the records that belong to it: what they show, and what follows from those not there."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex.jobs.querying.question import host_text, meaning_row
from rocketmq_reindex.jobs.tracing.finding import Belonging, OwnRecords, StoreTracer
from rocketmq_reindex.jobs.tracing.timeline import Certainty, TraceEvent
from rocketmq_reindex.storage_format.record import layout as r, meaning as m
from rocketmq_reindex.storage_format.record.layout import CHECK_POINT_TAG, PopRecord, as_number
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.storage_format.topics import RETRY_PREFIX
from rocketmq_reindex.udfs.times import show_time

_CHECKS: Final = "TRANSACTION_CHECK_TIMES"
_PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""the queue offset of the half message that this one was put back for"""


class PopPlace(NamedTuple):
    """Where a group took a message by POP."""

    group: str
    topic: str
    queue_id: int
    offset: int


def client_host(record: Message) -> str:
    """Return the address of the client that made a record, without its port."""
    return host_text(record.born_host).rpartition(":")[0]


def event_of(
    tracer: StoreTracer, record: Message, what: str, text: str, time: int | None = None, certainty: Certainty = "seen",
    group: str | None = None,
) -> TraceEvent:  # fmt: skip
    """Return an event that a record shows: at its store time, unless another is given."""
    evidence = f"{escape(record.topic)}/{record.queue_id}/{record.queue_offset}"
    shown = record.store_time if time is None else time
    return TraceEvent(shown, tracer.store.name, what, text, evidence, certainty, record.phy_offset, group)


class Telling:
    """Tells of one message in one store. ``belonging`` are all records with its unique key, in the order of the log."""

    def __init__(self, tracer: StoreTracer, belonging: Sequence[Belonging], own: OwnRecords) -> None:
        self._tracer, self._own = tracer, own
        self._event = functools.partial(event_of, tracer)
        # Only who asks for a recall itself is told of it as a message.
        self._belonging = [each for each in belonging if not each.is_recall] or list(belonging)
        self._unique_key = belonging[0].record.unique_key if belonging else None
        # What is not in a part of the log that nobody has looked at does not follow from anything.
        self._absence: Certainty = "follows" if tracer.is_covered else "unknown"
        self._units = {each.record.phy_offset: tracer.unit_of(each.record) for each in self._belonging if each.is_at_clients}

    def events(self) -> Iterator[TraceEvent]:
        """Yield all events."""
        yield from self._records()
        yield from self._transactions()
        yield from self._waiting()
        yield from self._pops()

    def places(self) -> list[Belonging]:
        """Return the records that consumers read, or may read, where they were stored: no other record has their place."""
        return [each for each in self._belonging if each.is_at_clients and not self._is_replaced(each.record)]

    def _is_replaced(self, record: Message) -> bool:
        unit = self._units.get(record.phy_offset)
        return unit is not None and unit.phy_offset != record.phy_offset

    def is_in_light(self, record: Message, name: str, offset: int) -> bool:
        """Return whether a light queue leads to a record at an offset, as far as its files tell.

        A broker that adds a dead letter to it, which names the offsets of its message, passes over a later message.
        """
        unit = self._tracer.unit_at(name, 0, offset)
        return unit is None or unit.phy_offset == record.phy_offset

    def _records(self) -> Iterator[TraceEvent]:
        """Yield what each record shows by itself."""
        if not self._belonging:
            return
        first = self._belonging[0]
        # What comes again was put there by the broker: the host is its own (PopReviveService.reviveRetry).
        host = "" if first.kind in (m.RETRY, m.DEAD_LETTER) else f" on {host_text(first.record.born_host)}"
        yield self._event(first.record, "born", f"made by a client{host}", first.record.born_time)
        if (said := _origin(first.record)) is not None:
            yield self._event(first.record, "replayed", f"sent again by `rmq-reindex replay`: {said}")
        for each in self._belonging:
            yield self._of_record(each)
            if self._is_replaced(each.record):
                text = f"the queue has another message at its offset {each.record.queue_offset}: the topic was made anew"
                event = self._event(each.record, "not served", text, certainty="follows")
                yield dataclasses.replace(event, time=None)
            for light in each.meant.details.get("lightQueues", ()) if each.kind == m.MESSAGE else ():
                if light["offset"] is not None and not self.is_in_light(each.record, light["queue"], light["offset"]):
                    text = f"the light queue {light['queue']} has another message at its offset {light['offset']}"
                    yield dataclasses.replace(self._event(each.record, "not served", text, certainty="follows"), time=None)

    def _of_record(self, each: Belonging) -> TraceEvent:
        record = each.record
        text = meaning_row(each.meant)["text"]
        at = f"{record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
        if each.kind == m.MESSAGE and _is_commit(record):
            return self._event(record, "committed", f"committed: stored in {at}")
        if each.kind == m.MESSAGE:
            waited = any(_waits_for(other, each) for other in self._belonging)
            what, how = ("delivered", "delivered to") if waited else ("stored", "stored in")
            return self._event(record, what, f"{how} {at}{text.removeprefix('message')}")
        if each.kind == m.HALF:
            is_again = _CHECKS in record.properties or _PREPARED_OFFSET in record.properties
            checks = f" (check count {record.properties[_CHECKS]})" if _CHECKS in record.properties else ""
            again = f"half message for {each.meant.place.topic} put back by the broker{checks}"
            return self._event(record, "checked" if is_again else "half", again if is_again else text)
        if each.kind in (m.RETRY, m.DEAD_LETTER):
            group = self._group(each)
            named = f"group {group}" if group else "an unnamed group"
            if each.kind == m.DEAD_LETTER:
                return self._event(record, "dead letter", f"dead letter of {named}: {at}", group=group)
            again = f"comes again to {named}, attempt {record.reconsume_times}: {at}"
            return self._event(record, "retried", again, group=group)
        if _is_commit(record):
            return self._event(record, "committed", f"committed: {text}")
        return self._event(record, each.kind.replace("_", " "), text)

    def _group(self, each: Belonging) -> str | None:
        """Return the group that gets a message again. POP names the topic behind it, and tells the topic nowhere else."""
        group = each.meant.place.group
        if each.meant.place.topic is None:
            topics = (other.record.topic for other in self._belonging if other.kind == m.MESSAGE)
            return next((named for topic in topics if (named := m.pop_group(each.record.topic, topic)) is not None), group)
        return group

    # -- transactions -------------------------------------------------------------------------------------------------

    def _transactions(self) -> Iterator[TraceEvent]:
        committed = {each.record.prepared_offset for each in self._belonging if _is_commit(each.record)}
        given_up = [each.record.phy_offset for each in self._belonging if each.kind == m.GIVEN_UP]
        for chain in self._chains():
            last = chain[-1]
            if not committed.isdisjoint(half.phy_offset for half in chain):
                continue
            if any(at > last.phy_offset for at in given_up):
                continue
            names = {half.queue_offset for half in chain}
            names |= {at for half in chain if (at := as_number(half.properties.get(_PREPARED_OFFSET, ""))) is not None}
            decided, is_whole = self._tracer.op_of(chain[0], names)
            if decided is not None:
                text = "rolled back: an op message names it, and the log has no committed message"
                yield self._event(decided, "rolled back", text, certainty=self._absence)
                continue
            certainty: Certainty = self._absence if is_whole else "unknown"
            text = f"neither committed nor rolled back: no op message names its offset {last.queue_offset}"
            if certainty == "unknown":
                text = "not committed as far as the log was looked at; whether it was rolled back is not known"
            yield dataclasses.replace(self._event(last, "undecided", text, certainty=certainty), time=None)

    def _chains(self) -> list[list[Message]]:
        """Return the half messages: those that a broker put back for an earlier one stand behind it."""
        chains: list[list[Message]] = []
        for each in self._belonging:
            if each.kind == m.HALF:
                said = each.record.properties
                if chains and (_CHECKS in said or _PREPARED_OFFSET in said):
                    chains[-1].append(each.record)
                else:
                    chains.append([each.record])
        return chains

    # -- delays -------------------------------------------------------------------------------------------------------

    def _recalls(self) -> list[Message]:
        """Return the marks that take this message back: of 5.3 they name the topic before its unique key, of later ones not
        always (``TimerMessageStore.buildDeleteKey``)."""
        names = {each.meant.place.topic for each in self._belonging if each.kind == m.TIMER}
        found = []
        for mark in self._own.recalls:
            topic, plus, unique_key = mark.properties["TIMER_DEL_UNIQKEY"].rpartition("+")
            if unique_key == self._unique_key and (not plus or topic in names):
                found.append(mark)
        return found

    def _waiting(self) -> Iterator[TraceEvent]:
        recalls = self._recalls()
        for recall in recalls:
            yield self._event(recall, "recalled", f"a client takes the waiting message {self._unique_key} back")
        taken: set[int] = set()
        for number, each in enumerate(self._belonging):
            if each.kind not in (m.SCHEDULED, m.TIMER) or each.is_recall:
                continue
            later = self._belonging[number + 1 :]
            copy = next((other for other in later if _waits_for(each, other) and other.record.phy_offset not in taken), None)
            if any(_rolls_on(each, other) for other in later):
                continue
            if copy is not None:
                taken.add(copy.record.phy_offset)
            else:
                yield self._undelivered(each, bool(recalls))

    def _undelivered(self, each: Belonging, recalled: bool) -> TraceEvent:
        due, end = each.meant.place.deliver_time, self._tracer.end_time
        if recalled and each.kind == m.TIMER:
            return self._event(each.record, "not delivered", "recalled before its time", due, certainty=self._absence)
        if due is None or end is None:
            text = "the log has no copy of it, and nothing tells whether it was due"
            return self._event(each.record, "not delivered", text, due, certainty="unknown")
        if due > end:
            text = f"still waits at the log's end ({show_time(end)})"
            return self._event(each.record, "waits", text, due, certainty=self._absence)
        return self._event(each.record, "not delivered", "was due, and the log has no copy of it", due, certainty="unknown")

    # -- pop ----------------------------------------------------------------------------------------------------------

    def _pops(self) -> Iterator[TraceEvent]:
        places = {each.place for each in self.places()}
        by_place: dict[PopPlace, list[tuple[Message, PopRecord]]] = {}
        for record, said in self._own.pops:
            for offset in said.offsets:
                if (said.topic, said.queue_id, offset) in places:
                    by_place.setdefault(PopPlace(said.group, said.topic, said.queue_id, offset), []).append((record, said))
        for place, told in by_place.items():
            yield from self._pop_events(place, told)

    def _pop_events(self, place: PopPlace, told: Sequence[tuple[Message, PopRecord]]) -> Iterator[TraceEvent]:
        """Yield what a group did with a message by POP, from its check points and acknowledgements in the order of the log."""
        at, group = f"{place.topic}, queue {place.queue_id}, offset {place.offset}", place.group
        # The broker puts a check point again whose messages it could not give back (PopReviveService.rePutCK).
        points = [(record, said) for record, said in told if record.tags == CHECK_POINT_TAG and not said.is_again]
        acks = [(record, said) for record, said in told if record.tags != CHECK_POINT_TAG]
        for number, (record, said) in enumerate(points):
            until = show_time(said.revive_time)
            before = points[number - 1][1] if number else None
            # ChangeInvisibleTimeProcessor: a new check point of this message alone, then it acknowledges the one before.
            put_off = [
                ack for ack in acks if before is not None and ack[1].pop_time == before.pop_time != said.pop_time
                and ack[0].phy_offset > record.phy_offset and len(said.offsets) == 1
            ]  # fmt: skip
            if put_off:
                yield self._event(record, "put off", f"group {group} put {at} off until {until}", said.pop_time, group=group)
                acks.remove(put_off[0])
            else:
                text = f"group {group} took {at} by POP, and has until {until}"
                yield self._event(record, "popped", text, said.pop_time, group=group)
        done = {said.pop_time for _, said in acks}
        ends = {said.pop_time: said.revive_time for _, said in points}
        for record, said in acks:
            late = ", when its time was over" if record.store_time > ends.get(said.pop_time, record.store_time) else ""
            yield self._event(record, "acknowledged", f"group {group} acknowledged {at}{late}", group=group)
        if points and points[-1][1].pop_time not in done and not self._came_again(place):
            record, said = points[-1]
            text = f"group {group} has not acknowledged it in this log"
            yield self._event(record, "open", text, said.revive_time, certainty="unknown", group=group)

    def _came_again(self, place: PopPlace) -> bool:
        at = (place.topic, place.queue_id, place.offset)
        here = next((each.record for each in self._belonging if each.place == at), None)
        return here is not None and any(
            _is_pop_retry(place, each.record.topic) and each.record.phy_offset > here.phy_offset
            and each.record.reconsume_times == here.reconsume_times + 1
            for each in self._belonging
        )  # fmt: skip


def _is_pop_retry(place: PopPlace, topic: str) -> bool:
    """Return whether POP gives back by way of a topic what the group took there; what comes again stays in that topic."""
    return topic == place.topic if place.topic.startswith(RETRY_PREFIX) else m.pop_group(topic, place.topic) == place.group


def _is_commit(record: Message) -> bool:
    return record.sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_COMMIT and not _is_delivered(record)


def _is_delivered(record: Message) -> bool:
    """Return whether a record is the copy of one that waited: it has that one's flags, and no offset of a half message."""
    return record.prepared_offset == 0 and not m.DELAYED.isdisjoint(record.properties)


def _waits_for(waiting: Belonging, copy: Belonging) -> bool:
    """Return whether a record may be the copy of one that waits."""
    return (
        waiting.kind in (m.SCHEDULED, m.TIMER)
        and waiting.meant.place.topic == copy.record.topic
        and waiting.record.phy_offset < copy.record.phy_offset
        and waiting.record.reconsume_times == copy.record.reconsume_times
    )


def _rolls_on(waiting: Belonging, other: Belonging) -> bool:
    """Return whether a timer was stored again on its way (``TimerMessageStore.convertMessage``)."""
    before, after = (as_number(each.record.properties.get("TIMER_ROLL_TIMES", "")) or 0 for each in (waiting, other))
    return waiting.kind == other.kind == m.TIMER and waiting.meant.place == other.meant.place and before < after


def _origin(record: Message) -> str | None:
    """Return where a replayed message comes from; None where it does not say that it was replayed."""
    names = ("topic", "queue_id", "queue_offset", "phy_offset", "broker", "message_id")
    topic, queue_id, offset, phy_offset, broker, key = (record.properties.get(f"{m.REPLAY_ORIGIN}{name}") for name in names)
    if topic is None or phy_offset is None:
        return None
    place = f"{topic}, queue {queue_id}" + (f", offset {offset}" if offset is not None else "")
    return f"it was in {place}, at offset {phy_offset} of the log of {broker}" + (f", as {key}" if key is not None else "")
