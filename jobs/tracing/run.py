"""Trace messages over several stores: their records, traces of clients, and where consumer groups stand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.consumer_offsets import OrderedMessage, QueueOfGroup
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import OffsetSpan
from rocketmq_reindex.jobs.tracing.finding import Belonging, OwnRecords, StoreTracer
from rocketmq_reindex.jobs.tracing.telling import Telling, client_host, event_of
from rocketmq_reindex.jobs.tracing.timeline import Trace, TracedMessage, TraceEvent, TraceResult, in_order
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import CONFIG
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.times import show_time

# -------------------------------------------------------------------------------------------------------------------- consumers
# Where consumer groups stand, against where the message lies.

_BROADCAST: Final = "@broadcast"
"""ends the name under which a broker notes a group that broadcasts (``BroadcastOffsetManager``): no group's own has an @"""


def _by_queue(telling: Telling) -> dict[tuple[str, int], list[OffsetSpan]]:
    """Return the queues in which the message lies, by topic and queue id, also as one of a light queue."""
    by_queue: dict[tuple[str, int], list[OffsetSpan]] = {}
    for each in telling.places():
        first = each.record.queue_offset
        span = OffsetSpan(first, first + each.record.message_count)
        by_queue.setdefault((each.record.topic, each.record.queue_id), []).append(span)
        for light in each.meant.details.get("lightQueues", ()):
            if (first := light["offset"]) is not None and telling.is_in_light(each.record, light["queue"], first):
                by_queue.setdefault((light["queue"], 0), []).append(OffsetSpan(first, first + 1))
    return by_queue


def _of_groups(
    store: str, by_queue: Mapping[tuple[str, int], Sequence[OffsetSpan]], by_file: Mapping[str, Mapping[QueueOfGroup, int]]
) -> Iterator[TraceEvent]:
    """Yield where each group stands that reads a queue in which the message lies."""
    for evidence, offsets in by_file.items():
        for (group, topic, queue_id), reached in offsets.items():
            for span in by_queue.get((topic, queue_id), ()):
                stands = f"group {group} is at {reached} of {topic}, queue {queue_id}"
                if group.endswith(_BROADCAST):
                    what, text = _of_broadcast(group, stands, reached >= span.end)
                elif reached >= span.end:
                    what, text = "passed", f"{stands}: it consumed the message, skipped it, sent it back, or took it by POP"
                elif reached > span.first:
                    what, text = "passed", f"{stands}: it is through with a part of the batch"
                else:
                    what, text = "not reached", f"{stands}: it has not consumed the message, or not noted it yet"
                yield TraceEvent(None, store, what, text, evidence, "follows", group=group)


def _of_broadcast(group: str, stands: str, is_behind: bool) -> tuple[str, str]:
    """Return what is told of a group that broadcasts, of which a broker notes how far its slowest client has asked."""
    named = group.removesuffix(_BROADCAST)
    if is_behind:
        return "passed", f"{stands}: each client of {named}, which broadcasts, was given the message, or began behind it"
    return "not reached", f"{stands}: a client of {named}, which broadcasts, was not given the message, or it is not noted yet"


def _in_order(
    store: str, by_queue: Mapping[tuple[str, int], Sequence[OffsetSpan]], evidence: str,
    taken: Mapping[QueueOfGroup, Sequence[OrderedMessage]], how: str = ", in order",
) -> Iterator[TraceEvent]:  # fmt: skip
    """Yield what groups did with the message by POP: those that consume in order, as far as it is in their newest batch of its
    queue, or those of which RocksDB tells."""
    for (group, topic, queue_id), messages in taken.items():
        spans = by_queue.get((topic, queue_id), ())
        for each in messages:
            if not any(span.first <= each.offset < span.end for span in spans):
                continue
            at = f"{topic}, queue {queue_id}, offset {each.offset}"
            again = f", attempt {each.times + 1}" if each.times else ""
            until = "" if each.until is None else f", and has until {show_time(each.until)}"
            text = f"group {group} took {at} by POP{how}{again}{until}"
            yield TraceEvent(each.pop_time, store, "popped", text, evidence, group=group)
            if each.is_acknowledged:
                yield TraceEvent(None, store, "acknowledged", f"group {group} acknowledged {at}", evidence, group=group)
            else:
                text = f"group {group} had not acknowledged it when the broker wrote this file"
                yield TraceEvent(each.until, store, "open", text, evidence, "unknown", group=group)


# ----------------------------------------------------------------------------------------------------------------------- traces
# What clients wrote of the message themselves.


def _of_traces(tracer: StoreTracer, unique_key: str) -> Iterator[TraceEvent]:
    for record, trace in tracer.traces(unique_key):
        # As mqadmin has it: the client's host is that of the message with its traces (TraceView.decodeFromTraceTransData).
        host = client_host(record)
        kind, time = trace["traceType"], trace.get("timeStamp")
        told = trace.get("groupName")
        group = told if isinstance(told, str) else None
        named = f"group {group} on {host}" if group else f"an unnamed group on {host}"
        succeeded = "success" if trace.get("success") else "failure"
        if kind == "Pub":
            what, text = "sent", f"{named} sent it to {trace['topic']}: {succeeded} after {trace['costTime']} ms"
        elif kind == "SubBefore":
            retries = f", retry {trace['retryTimes']}" if trace.get("retryTimes") else ""
            what, text = "given", f"given to a client of {named}{retries}"
        elif kind == "SubAfter":
            what, text = "consumed", f"a client of {named} is done: {succeeded} after {trace['costTime']} ms"
        elif kind == "EndTransaction":
            what, text = "decided", f"{named} decided: {trace['transactionState']}"
        else:
            what, text = "recalled", f"{named} takes it back: {succeeded}"
        yield event_of(tracer, record, what, text, time if isinstance(time, int) else None, group=group)


# -------------------------------------------------------------------------------------------------------------------------- run


class Named(NamedTuple):
    """A message that the question names: one of its records, and where that was found."""

    name: str
    record: Message
    tracer: StoreTracer


def run(
    asked: Trace, result: TraceResult, notes: Notes, progress: ProgressListener, slots_max: int | None = None
) -> None:  # fmt: skip
    """Fill the result. Raises InputError for what is no store, or has no index and no ``scan``.

    At most ``slots_max`` slots of each queue of a broker's own are looked at, if given; a note says so.
    """
    with contextlib.ExitStack() as opened:
        tracers: list[StoreTracer] = []
        for store in asked.stores:
            tracers.append(StoreTracer(store, asked, notes, progress, slots_max))
            opened.enter_context(tracers[-1].search)
        named, tracers = _newest(asked, tracers, notes)
        records: dict[str, list[TraceEvent]] = {each.name: [] for each in named}
        for tracer in tracers:
            try:
                events = _of_store(tracer, named, notes)
            except InputError as error:
                if any(each.tracer is tracer for each in named):
                    raise
                # The message was found elsewhere.
                notes.add("a store", str(error))
                continue
            for name, some in events.items():
                records[name] += some
        for each in named:
            meant = each.tracer.belonging(each.record).meant.place.topic or each.record.topic
            keys = tuple(each.record.keys)
            result.messages.append(TracedMessage(each.name, keys, meant, tuple(in_order(_born_once(records[each.name])))))


def _of_store(tracer: StoreTracer, named: Sequence[Named], notes: Notes) -> dict[str, list[TraceEvent]]:
    """Return what a store tells of each message, by its name. Raises InputError."""
    events: dict[str, list[TraceEvent]] = {}
    tracer.look_ahead(each.record.unique_key for each in named)
    belonging = {each.name: _belonging(tracer, each) for each in named}
    some = any(belonging.values())
    own = tracer.own_records([one for each in belonging.values() for one in each]) if some else OwnRecords([], [])
    offset_files = consumer_offsets.of_store(tracer.store.path, notes) if some else []
    offsets = {f"{CONFIG}/{files.base(file.path)}": file.offsets(notes) for file in offset_files}
    evidence, taken = consumer_offsets.taken_in_order(tracer.store.path, notes) if some else ("", {})
    topics = frozenset(each.record.topic for some in belonging.values() for each in some)
    kept: dict[QueueOfGroup, list[OrderedMessage]] = {}
    for queue, message in consumer_offsets.taken_in_rocksdb(tracer.store.path, notes, topics) if topics else ():
        kept.setdefault(queue, []).append(message)
    for each in named:
        telling = Telling(tracer, belonging[each.name], own)
        by_queue = _by_queue(telling)
        events[each.name] = [
            *telling.events(),
            *_of_groups(tracer.store.name, by_queue, offsets),
            *_in_order(tracer.store.name, by_queue, evidence, taken),
            *_in_order(tracer.store.name, by_queue, consumer_offsets.POP_DATABASE, kept, how=""),
            *(_of_traces(tracer, each.record.unique_key) if each.record.unique_key is not None else ()),
        ]
    return events


def _newest(
    asked: Trace, tracers: Sequence[StoreTracer], notes: Notes
) -> tuple[list[Named], list[StoreTracer]]:  # fmt: skip
    """Return the messages that the question names, and who could look for them.

    Of very many the newest, in the order in which they were stored.
    """
    named: dict[str, Named] = {}
    able: list[StoreTracer] = []
    for tracer in tracers:
        try:
            tracer.check()
            found = tracer.asked_for()
        except InputError as error:
            # Another store may have it.
            if len(tracers) == 1:
                raise
            notes.add("a store", str(error))
            continue
        able.append(tracer)
        for record in found:
            name = record.unique_key or record.message_id
            named.setdefault(name, Named(name, record, tracer))
    if not named:
        for tracer in able:
            # An id that no broker gives is none in any store.
            tracer.search.say_what_is_unknown(asked.topic, asked.id if tracer is able[0] else None, None)
    ordered = sorted(named.values(), key=lambda each: (each.record.store_time, each.record.phy_offset))
    if len(ordered) > asked.max:
        text = f"{counted(len(ordered) - asked.max, 'older message')} with that key: name one by --id, or give a larger --max"
        notes.add("more messages", text, lost=False)
    return ordered[-asked.max :], able


def _belonging(tracer: StoreTracer, named: Named) -> list[Belonging]:
    """Return the records of a message in a store, the one that was named among them in any case: the index may lack it."""
    found = {} if named.record.unique_key is None else {
        each.record.phy_offset: each for each in tracer.with_unique_key(named.record.unique_key)
    }  # fmt: skip
    if tracer is named.tracer:
        found.setdefault(named.record.phy_offset, tracer.belonging(named.record))
    return [found[at] for at in sorted(found)]


def _born_once(events: Sequence[TraceEvent]) -> Iterator[TraceEvent]:
    """Leave out that a message was made, where a store says it of a copy: the earliest counts."""
    births = [event for event in events if event.what == "born"]
    first = min(births, key=lambda event: event.time or 0) if births else None
    yield from (event for event in events if event.what != "born" or event is first)
