"""Trace messages over several stores: their records, traces of clients, and where consumer groups stand."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.tracing.finding import Belonging, OwnRecords, StoreTracer
from rocketmq_reindex.jobs.tracing.options import Trace
from rocketmq_reindex.jobs.tracing.telling import Telling, event_of
from rocketmq_reindex.jobs.tracing.timeline import TracedMessage, TraceEvent, TraceResult, in_order
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.layouts import CONFIG, INT64_MAX
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.storage_format.text import java_string

# -------------------------------------------------------------------------------------------------------------------- consumers
# Where consumer groups stand, against where the message lies.

_OFFSET_FILES: Final = ("consumerOffset.json", "lmqConsumerOffset.json")
"""``ConsumerOffsetManager``, and ``LmqConsumerOffsetManager``, which a broker with enableLmq has instead"""
_ELSEWHERE: Final = ("consumerOffsets", "kvStore")
"""``RocksDBConsumerOffsetManager``, ``PopConsumerKVStore``: offsets and POP in RocksDB"""
_BYTES_MAX: Final = 256 << 20


class GroupOffsets(NamedTuple):
    """Where a group stands in the queues of a topic, and the file that says it."""

    file: str
    topic: str
    group: str
    offsets: dict[int, int]


def group_offsets(store: str, notes: Notes) -> list[GroupOffsets]:
    """Return what a store's files of consumer offsets say; what is broken in them, or elsewhere, is a note."""
    found: list[GroupOffsets] = []
    read = False
    for name in _OFFSET_FILES:
        path = files.join(store, CONFIG, name)
        # ConfigManager.load reads the copy where the file itself is not there, or cut short.
        for place in (path, f"{path}.bak"):
            if files.entry_of(place).kind != files.ABSENT and (table := _table(place, notes)) is not None:
                read = True
                found += _groups(place, table, notes)
                break
    elsewhere = [
        path for path in (files.join(store, CONFIG, _ELSEWHERE[0]), files.join(store, _ELSEWHERE[1]))
        if files.entry_of(path).kind != files.ABSENT
    ]  # fmt: skip
    for path in elsewhere:
        notes.add(
            "in RocksDB", f"{escape(path)}: is RocksDB's, which trace does not read: what groups did may be there", lost=False
        )
    if not read and not elsewhere:
        text = f"{escape(files.join(store, CONFIG, _OFFSET_FILES[0]))}: is not there: where groups stand is not known"
        notes.add("no consumer offsets", text, lost=False)
    return found


def _table(path: str, notes: Notes) -> dict[str, Any] | None:
    try:
        table = java_string.loads(files.read_bytes(path, _BYTES_MAX).decode("utf-8", "replace"))["offsetTable"]
    except (OSError, InputError) as error:
        notes.add("consumer offsets", f"{escape(path)}: {reason(error)}", lost=False)
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        table = None
    if not isinstance(table, dict):
        notes.add("consumer offsets", f"{escape(path)}: is no file of consumer offsets", lost=False)
        return None
    return table


def _groups(path: str, table: dict[str, Any], notes: Notes) -> Iterator[GroupOffsets]:
    for key, said in table.items():
        topic, _, group = key.partition("@")
        pairs = said.items() if isinstance(said, dict) else [("", None)]
        offsets = {
            int(queue): offset for queue, offset in pairs
            if re.fullmatch("[0-9]{1,10}", queue) and type(offset) is int and 0 <= offset <= INT64_MAX
        }  # fmt: skip
        if len(offsets) < len(pairs):
            notes.add("a group's offsets", f"{escape(path)}: {escape(key)}: has what is no offset of a queue", lost=False)
        if group:
            yield GroupOffsets(f"{CONFIG}/{files.base(path)}", topic, group, offsets)


def _of_groups(tracer: StoreTracer, places: Sequence[Belonging], groups: Sequence[GroupOffsets]) -> Iterator[TraceEvent]:
    """Yield where each group stands that reads a queue in which the message lies."""
    for known in groups:
        for record in (each.record for each in places if each.record.topic == known.topic):
            reached = known.offsets.get(record.queue_id)
            if reached is None:
                continue
            stands = f"group {known.group} is at {reached} of {known.topic}, queue {record.queue_id}"
            if reached >= record.queue_offset + record.message_count:
                what, text = "passed", f"{stands}: it consumed the message, skipped it, sent it back, or took it by POP"
            elif reached > record.queue_offset:
                what, text = "passed", f"{stands}: it is through with a part of the batch"
            else:
                what, text = "not reached", f"{stands}: it has not consumed the message, or not noted it yet"
            yield TraceEvent(None, tracer.store.name, what, text, known.file, "follows", group=known.group)


# ----------------------------------------------------------------------------------------------------------------------- traces
# What clients wrote of the message themselves.


def _of_traces(tracer: StoreTracer, unique_key: str) -> Iterator[TraceEvent]:
    for record, trace in tracer.traces(unique_key):
        kind, time = trace["traceType"], trace.get("timeStamp")
        told = trace.get("groupName")
        group = told if isinstance(told, str) else None
        named = f"group {group}" if group else "an unnamed group"
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


def run(asked: Trace, result: TraceResult, notes: Notes, progress: ProgressListener) -> None:
    """Fill the result. Raises InputError for what is no store, or has no index and no ``scan``."""
    with contextlib.ExitStack() as opened:
        tracers: list[StoreTracer] = []
        for store in asked.stores:
            tracers.append(StoreTracer(store, asked, notes, progress))
            opened.enter_context(tracers[-1].search)
        named = _newest(asked, tracers, notes)
        records: dict[str, list[TraceEvent]] = {each.name: [] for each in named}
        for tracer in tracers:
            belonging = {each.name: _belonging(tracer, each) for each in named}
            some = any(belonging.values())
            own = tracer.own_records([one for each in belonging.values() for one in each]) if some else OwnRecords([], [])
            groups = group_offsets(tracer.store.path, notes) if some else []
            for each in named:
                telling = Telling(tracer, belonging[each.name], own)
                records[each.name] += telling.events()
                records[each.name] += _of_groups(tracer, telling.places(), groups)
                if each.record.unique_key is not None:
                    records[each.name] += _of_traces(tracer, each.record.unique_key)
        for each in named:
            meant = each.tracer.belonging(each.record).meant.place.topic or each.record.topic
            keys = tuple(each.record.keys)
            result.messages.append(TracedMessage(each.name, keys, meant, tuple(in_order(_born_once(records[each.name])))))


def _newest(asked: Trace, tracers: Sequence[StoreTracer], notes: Notes) -> list[Named]:
    """Return the messages that the question names; of very many the newest, in the order in which they were stored."""
    named: dict[str, Named] = {}
    for tracer in tracers:
        for record in _asked_for(tracer, notes, alone=len(tracers) == 1):
            name = record.unique_key or record.message_id
            named.setdefault(name, Named(name, record, tracer))
    if not named and asked.topic is not None:
        for tracer in tracers:
            tracer.search.say_what_is_unknown(asked.topic, None, None)
    ordered = sorted(named.values(), key=lambda each: (each.record.store_time, each.record.phy_offset))
    if len(ordered) > asked.max:
        text = f"{counted(len(ordered) - asked.max, 'older message')} with that key: name one by --id, or give a larger --max"
        notes.add("more messages", text, lost=False)
    return ordered[-asked.max :]


def _asked_for(tracer: StoreTracer, notes: Notes, *, alone: bool) -> list[Message]:
    try:
        return tracer.asked_for()
    except InputError as error:
        # Another store may have it.
        if alone:
            raise
        notes.add("a store", str(error))
        return []


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
