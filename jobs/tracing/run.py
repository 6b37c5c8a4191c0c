"""Trace messages over several stores: their records, traces of clients, and where consumer groups stand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.tracing.belonging import Belonging, StoreTracer
from rocketmq_reindex.jobs.tracing.options import Trace
from rocketmq_reindex.jobs.tracing.timeline import Event, TracedMessage, TraceResult, in_order
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import CONFIG
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape, form, reason
from rocketmq_reindex.storage_format.text import java_string

# -------------------------------------------------------------------------------------------------------------------- consumers
# Where consumer groups stand, against where the message lies.

_OFFSET_FILES: Final = ("consumerOffset.json", "lmqConsumerOffset.json")
"""``ConsumerOffsetManager``, and ``LmqConsumerOffsetManager``, which a broker with enableLmq has instead"""
_BYTES_MAX: Final = 256 << 20


def group_offsets(store: str, notes: Notes) -> Iterator[tuple[str, str, dict[int, int]]]:
    """Yield (file, topic@group, offset of each queue) of a store's files of consumer offsets; a broken one is a note."""
    for name in _OFFSET_FILES:
        path = files.join(store, CONFIG, name)
        # ConfigManager.load reads the copy where the file itself is not there, or cut short.
        for place in (path, f"{path}.bak"):
            if files.entry_of(place).kind == files.ABSENT:
                continue
            try:
                table = java_string.loads(files.read_bytes(place, _BYTES_MAX).decode("utf-8", "replace"))["offsetTable"]
                known = [(key, {int(queue): int(offset) for queue, offset in of.items()}) for key, of in table.items()]
            except (OSError, InputError) as error:
                notes.add("consumer offsets", f"{escape(place)}: {reason(error)}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                notes.add("consumer offsets", f"{escape(place)}: is no file of consumer offsets")
            else:
                yield from ((f"{CONFIG}/{files.base(place)}", key, offsets) for key, offsets in known)
                break


def _of_groups(tracer: StoreTracer, belonging: Sequence[Belonging], notes: Notes) -> Iterator[Event]:
    """Yield where each group stands that reads a queue in which the message lies."""
    places = [each.record for each in belonging if each.is_at_clients]
    for file, key, offsets in group_offsets(tracer.store.path, notes) if places else ():
        topic, _, group = key.partition("@")
        for record in places:
            if record.topic != topic or record.queue_id not in offsets or not group:
                continue
            reached = offsets[record.queue_id]
            at = f"{topic}, queue {record.queue_id}"
            if reached > record.queue_offset:
                what, text = (
                    "passed",
                    f"group {group} is at {reached} of {at}: it has consumed offset {record.queue_offset}, or skipped it",
                )
            else:
                what, text = (
                    "not reached",
                    f"group {group} is at {reached} of {at}: offset {record.queue_offset} is still to come",
                )
            yield Event(None, tracer.store.name, what, text, file, "follows", group=group)


# ----------------------------------------------------------------------------------------------------------------------- traces
# What clients wrote of the message themselves.


def _of_traces(tracer: StoreTracer, unique_key: str) -> Iterator[Event]:
    for record, trace in tracer.traces(unique_key):
        kind, group = trace["traceType"], trace.get("groupName")
        time = trace.get("timeStamp")
        succeeded = "success" if trace.get("success") else "failure"
        if kind == "Pub":
            what, text = "sent", f"group {group} sent it to {trace['topic']}: {succeeded} after {trace['costTime']} ms"
        elif kind == "SubBefore":
            retries = f", retry {trace['retryTimes']}" if trace.get("retryTimes") else ""
            what, text = "given", f"given to a client of group {group}{retries}"
        elif kind == "SubAfter":
            what, text = "consumed", f"a client of group {group} is done: {succeeded} after {trace['costTime']} ms"
        elif kind == "EndTransaction":
            what, text = "decided", f"group {group} decided: {trace['transactionState']}"
        else:
            what, text = "recalled", f"group {group} takes it back: {succeeded}"
        yield tracer.event(
            record, what, text, time if isinstance(time, int) else None, group=group if isinstance(group, str) else None
        )


# -------------------------------------------------------------------------------------------------------------------------- run


def run(asked: Trace, result: TraceResult, notes: Notes, progress: ProgressListener) -> None:
    """Fill the result. Raises InputError for what is no store, or has no index and no ``scan``."""
    with contextlib.ExitStack() as opened:
        tracers = [StoreTracer(store, asked, notes, progress) for store in asked.stores]
        for tracer in tracers:
            opened.enter_context(tracer.search)
        named: dict[str, tuple[Message, StoreTracer]] = {}
        for tracer in tracers:
            for record in tracer.asked_for():
                named.setdefault(record.unique_key or record.message_id, (record, tracer))
        for name in list(named)[: asked.max]:
            result.messages.append(_traced(name, *named[name], tracers, notes))
        if len(named) > asked.max:
            count = len(named) - asked.max
            text = f"{count} more {form(count, 'message', 'messages')} with that key: name one by --id, or give a larger --max"
            notes.add("more messages", text, lost=False)


def _traced(name: str, record: Message, found_by: StoreTracer, tracers: Sequence[StoreTracer], notes: Notes) -> TracedMessage:
    events: list[Event] = []
    unique_key = record.unique_key
    for tracer in tracers:
        if unique_key is not None:
            belonging = tracer.with_unique_key(unique_key)
        else:
            belonging = [tracer.belonging(record)] if tracer is found_by else []
        events += tracer.events_of(belonging)
        if belonging:
            events += tracer.later_events(belonging, name)
            events += _of_groups(tracer, belonging, notes)
        if unique_key is not None:
            events += _of_traces(tracer, unique_key)
    real = record.properties.get("REAL_TOPIC", record.topic)
    return TracedMessage(name, tuple(record.keys), real, tuple(in_order(_born_once(events))))


def _born_once(events: list[Event]) -> Iterator[Event]:
    """Leave out that a message was made, where a store says it of a copy: the earliest counts."""
    births = [event for event in events if event.what == "born"]
    first = min(births, key=lambda event: event.time or 0) if births else None
    yield from (event for event in events if event.what != "born" or event is first)
