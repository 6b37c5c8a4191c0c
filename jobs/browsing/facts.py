"""What the pages show of a store, as plain values: the same that ``info`` and ``query`` say, and what lies around it."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import log_sample
from rocketmq_reindex.jobs.browsing.options import Facts, option_words
from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.contents import IndexFiles, StoreLog
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.jobs.store.owner import read_times
from rocketmq_reindex.jobs.store.queue import StoreQueue
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.queue.units import EMPTY, MISSING, PRE_BLANK, UNIT, Unit
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape, redacted, shell
from rocketmq_reindex.udfs.times import show_time

ROWS: Final = 50
"""rows of a page"""
FOUND_MAX: Final = 100
"""messages that a search shows"""
FILES_SHOWN: Final = 20
LOOKED_AT: Final = 20_000
"""positions without a unit that one page passes at most: a hostile file's name makes a gap of any length"""
SLOTS_MAX: Final = 5 * LOOKED_AT
"""slots of one queue that a page looks at: a search for a time passes those whose records cannot be read"""
BODY_SHOWN: Final = 64 << 10
HEX_SHOWN: Final = 1 << 10
BODY_MAX: Final = 64 << 20
"""bytes of a body that is handed out whole"""
LOST_TAG: Final = "__LOST__"
"""the tag of a tombstone, as ``repair`` writes it"""


@contextlib.contextmanager
def looking(store: TracedStore, warnings: list[str]) -> Iterator[tuple[Search, Notes]]:
    """Yield a search of a store; ``warnings`` gets what it notes. Raises InputError."""
    notes = Notes(warnings.append, warnings.append)
    with failures_as_errors("STORE"), Search(store.path, store.roots, notes, slots_max=SLOTS_MAX) as search:
        yield search, notes
        notes.close()


def command(name: str, store: TracedStore, words: Sequence[str] = ()) -> str:
    """Return the command line that says the same, without passwords."""
    return shell(["rmq-reindex", name, redacted(store.path), *words, *map(redacted, roots_words(store))])


def roots_words(store: TracedStore) -> list[str]:
    """Return the options that name the folders of segments of a store, where it was opened with some."""
    return [word for root in store.commitlogs for word in ("--commitlog", root)]


# --------------------------------------------------------------------------------------------------------------------- overview


def info(store: TracedStore) -> Facts:
    """Return what ``info`` says of a store. Raises InputError."""
    result = InfoResult()
    with failures_as_errors("STORE"):
        StoreLook(StoreSettings(store.path, commitlogs=store.commitlogs), result).run()
    return {name: value for name, value in result.to_dict().items() if name not in ("seconds", "exit", "error")}


def overview(store: TracedStore) -> Facts:
    """Return what ``info`` says of a store, and its newest segments, IndexFiles and checkpoint. Raises InputError."""
    with failures_as_errors("STORE"):
        return {
            "info": info(store),
            "segments": _segments(store),
            "indexFiles": _index_files(store),
            "checkpoint": _checkpoint(store),
            "command": command("info", store),
        }


def _segments(store: TracedStore) -> list[Facts]:
    with contextlib.closing(StoreLog(store.roots, Notes.silent())) as log:
        rows = []
        for segment in log.segments[-FILES_SHOWN:]:
            first = log.message(segment.start)
            is_record = isinstance(first, Message)
            rows.append({
                "file": escape(files.base(segment.path)), "bytes": segment.size, "firstOffset": segment.start,
                "firstRecord": first.phy_offset if isinstance(first, Message) else None,
                "firstTime": show_time(first.store_time) if isinstance(first, Message) else None,
                "wrong": None if is_record else first,
            })  # fmt: skip
        return rows


def _index_files(store: TracedStore) -> list[Facts]:
    notes, rows = Notes.silent(), []
    with contextlib.closing(IndexFiles(files.join(store.path, layouts.INDEX), None, notes, newest=FILES_SHOWN)) as index:
        for file in index.files:
            with contextlib.suppress(OSError, ValueError):
                header, sizes = file.header, file.sizes
                rows.append({
                    "file": escape(files.base(file.path)), "bytes": file.pages.size, "items": max(0, header.index_count - 1),
                    "room": None if sizes is None else sizes.items - 1, "slotsUsed": header.slot_count,
                    "slots": None if sizes is None else sizes.slots, "firstOffset": header.begin_place,
                    "lastOffset": header.end_place, "firstTime": show_time(header.begin_time),
                    "lastTime": show_time(header.end_time),
                })  # fmt: skip
    return rows


def _checkpoint(store: TracedStore) -> list[Facts] | None:
    """Return the fields of the checkpoint, each with what it says; None where there is none that can be read."""
    path = files.join(store.path, layouts.CHECKPOINT)
    try:
        if files.entry_of(path).kind != files.FILE:
            return None
        told = read_times(path)
    except (OSError, ValueError):
        return None

    def row(name: str, value: int, says: str, of_none: str) -> Facts:
        return {"field": name, "value": value, "text": says if value else of_none}

    return [
        row("physicMsgTimestamp", told.physic, f"the log is on disk up to {show_time(told.physic)}", "says nothing of the log"),
        row("logicsMsgTimestamp", told.logics, f"the queues are on disk up to {show_time(told.logics)}",
            "says nothing of the queues"),
        row("indexMsgTimestamp", told.index, f"full IndexFiles are on disk up to {show_time(told.index)}",
            "says nothing of the index"),
        row("masterFlushedOffset", told.master_flushed, f"the master had flushed up to {told.master_flushed}", "not set"),
        row("confirmPhyOffset", told.confirm_offset, f"the last good record begins at {told.confirm_offset}", "not set"),
        row("logicsPhysicalOffset", told.logics_offset, f"the last one with a unit begins at {told.logics_offset}", "not set"),
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------- queues


def topics(store: TracedStore, first: str) -> Facts:
    """Return the topics from a name on, in order of their names. Raises InputError."""
    warnings = list[str]()
    with looking(store, warnings) as (search, _):
        names = search.queues.topics()
        at = bisect_left(names, first)
        shown_names = names[at : at + ROWS]
        rows = [{"topic": n, "kind": meaning.kind_of(n), "queues": len(search.queues.ids(n))} for n in shown_names]
        unread = [search.queues.unread] if search.queues.unread else []
    return {
        "topics": rows, "count": len(names), "next": names[at + ROWS] if at + ROWS < len(names) else None,
        "previous": names[max(0, at - ROWS)] if at > 0 else None, "warnings": unread + warnings,
        "command": command("info", store, ["--json"]),
    }  # fmt: skip


def queues(store: TracedStore, topic: str, first: int) -> Facts:
    """Return the queues of a topic from a number on, with the offsets that they hold. Raises InputError."""
    warnings, rows = list[str](), list[Facts]()
    with looking(store, warnings) as (search, notes):
        ids = search.queues.ids(topic)
        at = bisect_left(ids, first)
        for number in ids[at : at + ROWS]:
            queue = search.queues.open(topic, number, search.log, notes)
            if queue is None:
                rows.append({"queue": number, "first": None, "end": None, "lastTime": None, "part": None})
                continue
            with contextlib.closing(queue):
                queue.units.left = SLOTS_MAX
                span, last = queue.span(), queue.last_unit()
                message = None if last is None else search.log.message(last.phy_offset)
                rows.append({
                    "queue": number, "first": span.first if span else None, "end": span.end if span else None,
                    "lastTime": show_time(message.store_time) if isinstance(message, Message) else None,
                    "part": escape(queue.part),
                })  # fmt: skip
        if not ids:
            search.say_what_is_unknown(topic, None, None)
    return {
        "topic": topic, "kind": meaning.kind_of(topic), "queues": rows, "count": len(ids),
        "next": ids[at + ROWS] if at + ROWS < len(ids) else None, "previous": ids[max(0, at - ROWS)] if at > 0 else None,
        "warnings": warnings, "command": command("info", store, ["--json"]),
    }  # fmt: skip


def units(
    store: TracedStore, topic: str, number: int, first: int | None, time: int | None, delays: tuple[int, ...] = ()
) -> Facts | None:  # fmt: skip
    """Return the units of a queue from an offset on, or from the first record stored at ``time`` or later (milliseconds).

    Positions without a unit are rows, too, a run of one kind is one row. ``delays`` are the milliseconds of each delay level.
    None for a queue that is not there. Raises InputError for one without files.
    """
    warnings = list[str]()
    with looking(store, warnings) as (search, _):
        if not search.queues.unread and number not in search.queues.ids(topic):
            return None
        queue = search.queue(topic, number)
        held = queue.units
        begin, end = held.begin, held.end
        if time is not None:
            at = queue.position_at_time(time, False)
        else:
            at = begin if first is None else max(begin, held.find(first))
        rows, behind = _rows(queue, (topic, number), search.log, at, delays)
        span = queue.span()
        previous = max(begin, min(at, end) - ROWS)
        offset = rows[0]["offset"] if rows else first or 0
        found = {
            "topic": topic, "queue": number, "kind": meaning.kind_of(topic), "first": span.first if span else None,
            "end": span.end if span else None, "units": rows, "next": _offset(held.at(behind)) if behind < end else None,
            "previous": _offset(held.at(previous)) if at > begin else None,
        }  # fmt: skip
    named = option_words([("topic", topic), ("queue", str(number)), ("offset", str(offset)), ("max", str(ROWS))])
    words = [*named, "--json"]
    return found | {"warnings": warnings, "command": command("query", store, words)}


def _offset(unit: Unit) -> int:
    """Return the queue offset of a unit; the position of one that is not there, which is the same but for batches."""
    return unit.base if unit.kind == UNIT else unit.position


def _rows(
    queue: StoreQueue, name: tuple[str, int], log: StoreLog, position: int, delays: tuple[int, ...]
) -> tuple[list[Facts], int]:  # fmt: skip
    """Return the rows of a page from a position on, and the position behind them."""
    rows, end, looked = list[Facts](), queue.units.end, 0
    while position < end and len(rows) < ROWS and looked < LOOKED_AT:
        unit = queue.units.at(position)
        if unit.kind == UNIT:
            rows.append(_row(unit, log, name, delays))
            position += 1
            continue
        stop = position
        while stop < end and looked < LOOKED_AT and queue.units.at(stop).kind == unit.kind:
            stop, looked = min(end, queue.units.behind_gap(stop)), looked + 1
        text = _WITHOUT.get(unit.kind, "what stands there is no unit")
        rows.append({"what": "gap", "offset": position, "last": stop - 1, "text": text})
        position = stop
    return rows, position


_WITHOUT: Final = {
    PRE_BLANK: "stands before the queue's first message (pre-blank)",
    EMPTY: "has no unit (zeros stand there)",
    MISSING: "lies in a part of the queue that is missing",
}


def _row(unit: Unit, log: StoreLog, queue: tuple[str, int], delays: tuple[int, ...]) -> Facts:
    message = log.message(unit.phy_offset)
    row: Facts = {
        "what": "message", "offset": unit.base, "last": unit.base + unit.messages - 1, "physicalOffset": unit.phy_offset,
        "size": unit.size, "tagsCode": unit.tags_code, "storeTime": None, "keys": [], "tags": None, "uniqueKey": None,
    }  # fmt: skip
    if isinstance(message, str):
        return row | {"what": "no record", "text": message}
    text = ""
    # A light queue is not the one that its records name.
    if message.queue_offset > unit.base and (message.topic, message.queue_id) == queue and unit.messages == 1:
        row["what"], text = "fill", f"repeats the message at {message.queue_offset}: none has this offset"
    elif message.tags == LOST_TAG:
        row["what"], text = "tombstone", "stands for a message that is lost: a repair put it there"
    elif message.queue_offset != unit.base and unit.messages == 1:
        text = f"the record says {escape(message.topic)}/{message.queue_id} at {message.queue_offset}"
    if message.size != unit.size:
        text += f"{'; ' if text else ''}the record has {message.size} bytes"
    if meaning.kind_of(message.topic) != meaning.MESSAGE:
        text += f"{'; ' if text else ''}{log_sample.meant(message, log, delays)}"
    return row | {
        "storeTime": show_time(message.store_time), "keys": message.keys, "tags": message.tags,
        "uniqueKey": message.unique_key, "text": text,
    }  # fmt: skip
