"""The page of a message: what it is, what leads to it, where it points to, what lies around it, and its trace.

All of it is bounded: a page looks at so many items of an index, slots of a queue and bytes of the log, and says where there
may be more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import facts, neighbours, options
from rocketmq_reindex.jobs.querying import question, search, shown
from rocketmq_reindex.jobs.store import contents, folders, queue as store_queue
from rocketmq_reindex.jobs.tracing import run, timeline
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.index import layout as index_header
from rocketmq_reindex.storage_format.layouts import key_hash, tag_hash
from rocketmq_reindex.storage_format.queue.units import UNIT, QueueUnits
from rocketmq_reindex.storage_format.record.message import Message

OFFSET_MAX: Final = layouts.INT64_MAX // 64
"""the largest queue offset that an address takes"""
SHOWN: Final = 20
"""keys that are looked up, light queues, and places that a record points to"""
READS_MAX: Final = 5_000
"""slots and items of IndexFiles that are read: a key of very many messages, and each tag, has a long chain"""
OTHER_FILES: Final = 16
"""IndexFiles that are looked into though their header says that the record is not in them, the newest ones"""
STEPS_MAX: Final = 5_000
"""slots without a unit that are passed on the way to a neighbour"""
SLOTS_TRACED: Final = 10_000
"""slots of each queue of the broker's own that a trace looks at"""
_HEX_LINE: Final = 16
_BESIDE: Final = ("properties", "meaning", "body", "bodyFormat", "bodyTruncated")
"""fields of a message that have a section of their own"""

# ---------------------------------------------------------------------------------------------------------------------- message


def message(store: timeline.TracedStore, words: Sequence[str], delay_levels: str) -> options.Facts:
    """Return a message and what lies around it; ``message`` is None where there is none, and ``warnings`` say why.

    ``words`` are those of ``query`` for one message: ``--physical``, or ``--topic``, ``--queue`` and ``--offset``.
    """
    more = ["--delay-levels", delay_levels, "--body-max", str(facts.BODY_SHOWN)]
    query = question.parse_query([store.path, *words, *facts.roots_words(store), *more])
    warnings = list[str]()
    with facts.looking(store, warnings) as (found, notes):
        served = next(iter(question.answer(query, found)), None)
        told: options.Facts = {"store": store.name, "warnings": warnings, "command": facts.command("query", store, words)}
        told["message"] = None
        if served is not None:
            record, row = served.message, question.row_of(served, found.log, query, notes)
            body = shown.read_body(record, found.log, facts.BODY_SHOWN, folders.Notes.silent())
            told |= {
                "message": row, "json": _as_json(body), "hex": body.data[: facts.HEX_SHOWN].hex(),
                "bytesShown": len(body.data), "whole": body.whole,
                "inLog": neighbours.in_log(found.log, record), "inQueue": _in_queue(found, served, query, notes),
                "index": index_items(found, record), "lightQueues": _light_queues(found, record, row["meaning"]),
                "pointsTo": list(_points_to(found, row["meaning"])),
            }  # fmt: skip
    return told


def _as_json(body: shown.Body) -> str | None:
    """Return a whole body that is a JSON object or list, laid out; None for others."""
    how, value = shown.body_value(body.data, "json") if body.whole else ("hex", None)
    return json.dumps(value, indent=2, ensure_ascii=False) if how == "json" and isinstance(value, dict | list) else None


def whole_body(store: timeline.TracedStore, phy_offset: int) -> bytes | str:
    """Return the whole body of the message at an offset of the log, unpacked, or why it cannot be had. Raises InputError."""
    warnings = list[str]()
    with facts.looking(store, warnings) as (found, notes):
        record = found.log.message(phy_offset)
        if isinstance(record, str):
            return f"offset {phy_offset}: {record}"
        body = shown.read_body(record, found.log, facts.BODY_MAX, notes)
    return body.data if body.whole else body.fault or f"the body has more than {facts.BODY_MAX:,} bytes"


# ------------------------------------------------------------------------------------------------------------------- neighbours


def _in_queue(
    found: search.Search, served: store_queue.ServedMessage, query: question.Query, notes: folders.Notes
) -> options.Facts:  # fmt: skip
    """Return whether the queue leads to a message, and the next offsets before and behind it that have a unit."""
    record = served.message
    offset = record.queue_offset if served.queue_offset is None else served.queue_offset
    # A light queue is not the one that its records name.
    topic, number = (record.topic, record.queue_id) if query.queue is None else (query.topic or record.topic, query.queue)
    told: options.Facts = {
        "topic": topic, "queue": number, "queueOffset": offset, "leadsHere": None, "previous": None, "next": None,
    }  # fmt: skip
    queue = found.queues.open(topic, number, found.log, notes)
    if queue is None:
        return told
    with contextlib.closing(queue):
        held = queue.units
        held.left = facts.SLOTS_MAX
        at = held.find(offset)
        here = held.at(at)
        told["leadsHere"] = here.kind == UNIT and here.phy_offset == record.phy_offset
        told["previous"], told["next"] = _unit_near(held, at - 1, -1), _unit_near(held, at + 1, 1)
    return told


def _unit_near(units: QueueUnits, at: int, step: int) -> int | None:
    """Return the queue offset of the next unit from a position on; None where there is none so near."""
    for _ in range(STEPS_MAX):
        if not units.begin <= at < units.end:
            return None
        unit = units.at(at)
        if unit.kind == UNIT:
            return unit.base
        at = at - 1 if step < 0 else units.behind_gap(at)
    return None


# ------------------------------------------------------------------------------------------------------------------------ leads
# What leads to a record: items of the index, and units of light queues.


class _LongChain(Exception):
    """More slots and items were read than a page reads."""


def index_items(found: search.Search, record: Message) -> options.Facts:
    """Return the items of the index that lead to a record: of its unique key, its keys and its tags.

    ``whole`` is false where there may be more: many keys, or a key of very many messages.
    """
    index, at = found.index, record.phy_offset
    topic, keys = (
        record.topic,
        [("unique key", record.unique_key), *(("key", key) for key in record.keys), ("tag", record.tags)],
    )
    named = [(kind, text) for kind, text in keys if text]
    left = READS_MAX

    def reader(file: contents.OpenIndexFile) -> index_header.Read:
        def read(begin: int, count: int) -> bytes:
            nonlocal left
            left -= 1
            if left < 0:
                raise _LongChain
            return file.pages.read(begin, count)

        return read

    covering = [file for file in index.files if file.header.begin_place <= at <= file.header.end_place]
    others = [file for file in index.files if file not in covering][: -OTHER_FILES - 1 : -1]
    items, whole = list[options.Facts](), len(named) <= SHOWN
    try:
        for kind, text in dict.fromkeys(named[:SHOWN]):
            hashed = tag_hash(topic, text) if kind == "tag" else key_hash(topic, text)
            for part in (covering, others if kind != "tag" else []):
                before = len(items)
                for file in part:
                    items += [{"name": kind, "key": text, **item} for item in _items_in(file, reader(file), hashed, at)]
                if len(items) > before:
                    break
    except _LongChain:
        whole = False
    return {"present": index.present, "files": len(index.files), "items": items, "whole": whole}


def _items_in(file: contents.OpenIndexFile, read: index_header.Read, hashed: int, phy_offset: int) -> Iterator[options.Facts]:
    """Yield the items of a file that have a hash and lead to an offset. A file that cannot be read has been noted."""
    if file.sizes is None:
        return
    header = index_header.LookupHeader(file.header.index_count, *file.sizes)
    with contextlib.suppress(OSError, errors.InputError):
        for item, offset in index_header.all_items(read, header, hashed):
            if offset == phy_offset:
                yield {"file": showing.escape(files.base(file.path)), "slot": hashed % header.slots, "item": item}


def _light_queues(found: search.Search, record: Message, meant: options.Facts) -> list[options.Facts]:
    """Return the light queues that the record names, and whether each leads to it; None where it has no files."""
    told = list[options.Facts]()
    for each in meant.get("lightQueues", ())[:SHOWN]:
        row = {"topic": each["queue"], "queue": 0, "queueOffset": each["offset"], "leadsHere": None}
        queue = found.queues.open(each["queue"], 0, found.log, folders.Notes.silent()) if each["offset"] is not None else None
        if queue is not None:
            with contextlib.closing(queue):
                unit = queue.units.at(queue.units.find(each["offset"]))
                row["leadsHere"] = unit.kind == UNIT and unit.phy_offset == record.phy_offset
        told.append(row)
    return told


def _points_to(found: search.Search, meant: options.Facts) -> Iterator[options.Facts]:
    """Yield the places that a record speaks of: queues, or offsets in them, and offsets of the log.

    ``there`` says whether the store has that queue, or a message at that offset.
    """
    topic, number = meant.get("realTopic"), meant.get("realQueueId")
    if (pop := meant.get("pop")) is not None:
        for offset in pop["offsets"][:SHOWN]:
            yield _place(found, "a message that was taken or acknowledged by POP", pop["topic"], pop["queueId"], offset)
    elif "halfOffsets" in meant:
        for offset in meant["halfOffsets"][:SHOWN]:
            yield _place(found, "the half message that it decides", topics.HALF_TOPIC, number, offset)
    elif meant["kind"] != "message" and topic is not None and number is not None:
        yield _place(found, "the queue that it is for", topic, number, meant.get("realQueueOffset"))
    if (origin := meant.get("originOffset")) is not None:
        row = {"text": "the record that it was made from", "topic": None, "queue": None, "offset": None}
        yield row | {"physical": origin, "there": isinstance(found.log.message(origin), Message)}


def _place(found: search.Search, text: str, topic: str, number: int | None, offset: int | None) -> options.Facts:
    row = {"text": text, "topic": topic, "queue": number, "offset": offset, "physical": None, "there": False}
    if number is None or not 0 <= number <= layouts.INT32_MAX or topics.path_component(topic) is None:
        return row
    queue = found.queues.open(topic, number, found.log, folders.Notes.silent())
    if queue is not None:
        with contextlib.closing(queue):
            queue.units.left = facts.SLOTS_MAX
            if offset is None:
                row["there"] = True
            elif 0 <= offset <= OFFSET_MAX:
                unit = queue.units.at(queue.units.find(offset))
                row["there"] = unit.kind == UNIT and isinstance(found.log.message(unit.phy_offset), Message)
    return row


# ------------------------------------------------------------------------------------------------------------------------ pages


class MessagePages:
    """The pages of a message in the stores that were named."""

    def __init__(self, stores: options.OpenedStores, cell: Callable[[Any], str]) -> None:
        """Take what shows a value of a field by ``cell``."""
        self._stores, self._cell = stores, cell

    def shown(self) -> list[options.Address]:
        """Return the addresses."""
        return [
            options.Address("/message", "message", ("store", "physical", "topic", "queue", "offset"), self._message),
            options.Address("/trace", "trace", ("store", "physical", "unique_key"), self._trace),
        ]

    def _message(self, given: options.Asked) -> options.PageFacts:
        store = self._stores.named(given)
        names = ("physical",) if "physical" in given.given else ("topic", "queue", "offset")
        if not all(name in given.given for name in names):
            raise errors.UsageError("name a message by physical, or by topic, queue and offset")
        found = message(store, given.words(("topic", "queue", "offset", "physical")), self._stores.settings.delay_levels)
        row = found["message"]
        if row is None:
            return options.PageFacts("No message", found, {}, 404)
        return options.PageFacts(f"Message at {row['physicalOffset']}", found, self._parts(store.name, found))

    def _parts(self, store: str, found: options.Facts) -> dict[str, Any]:
        row, raw = found["message"], bytes.fromhex(found["hex"])
        text = found["json"] or (row["body"] if row["bodyFormat"] == "text" else None)
        size = f"{showing.counted(row['bodyLength'], 'byte')} in the log"
        packed = (
            f", {row['compression']}: {showing.counted(found['bytesShown'], 'byte')} uncompressed" if row["compression"] else ""
        )
        cut = "" if found["whole"] else f"; {showing.counted(found['bytesShown'], 'byte')} are shown"
        wrong = "; its CRC does not match" if row["bodyCrcMatches"] is False else ""
        key = row["uniqueKey"]
        return {
            "fields": [(name, self._cell(value)) for name, value in row.items() if name not in _BESIDE],
            "meant": [(name, self._cell(value)) for name, value in row["meaning"].items() if name != "text"],
            "body_lines": text.split("\n") if text else [], "json_body": found["json"] is not None,
            "hex_lines": _hex_lines(raw), "hex_bytes": len(raw), "body_note": f"{size}{packed}{cut}{wrong}. ",
            "at_offset": lambda where, offset: options.url(
                "message", store=store, topic=where["topic"], queue=where["queue"], offset=offset
            ),
            "trace": options.url("trace", unique_key=key) if key
            else options.url("trace", store=store, physical=row["physicalOffset"]),
        }  # fmt: skip

    def _trace(self, given: options.Asked) -> options.PageFacts:
        stores, key, physical = self._stores.wanted(given), given.given.get("unique_key"), given.number("physical")
        if (key is None) == (physical is None):
            raise errors.UsageError("name a message by unique_key, or by store and physical")
        if physical is not None and "store" not in given.given:
            raise errors.UsageError("store: is missing")
        words = given.words(("physical",)) if key is None else [f"--unique-key={key}"]
        wanted = timeline.Trace(tuple(stores), unique_key=key, physical=physical, delays=self._stores.settings.delays)
        alone = [each.name for each in stores] if key is not None and len(stores) > 1 else []
        return options.PageFacts("Trace", traced(wanted, words), {"key": key, "alone": alone})


def traced(wanted: timeline.Trace, words: Sequence[str]) -> options.Facts:
    """Return what ``trace`` says of a message over some stores, or in ``error`` why it cannot. ``words`` are its options."""
    result, error = timeline.TraceResult(), None
    notes = folders.Notes(result.warnings.append, result.warnings.append)
    try:
        with folders.failures_as_errors("--store"):
            run.run(wanted, result, notes, errors.NoListener(), SLOTS_TRACED)
        notes.close()
        result.decide(notes.lost)
    except errors.ReindexError as failed:
        error = str(failed)
    named = [word for store in wanted.stores for word in ("--store", f"{store.name}={showing.redacted(store.path)}")]
    roots = [showing.redacted(word) for store in wanted.stores for word in facts.roots_words(store)]
    # Where the index is lost, the command has to read the log.
    scan = ["--scan"] if error is not None and "--scan" in error else []
    return {
        **result.to_dict(),
        "error": error,
        "command": showing.shell(["rmq-reindex", "trace", *named, *roots, *words, *scan]),
    }


def _hex_lines(data: bytes) -> list[str]:
    return [
        f"{at:08x}  {data[at : at + _HEX_LINE].hex(' '):<{3 * _HEX_LINE}} "
        + "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data[at : at + _HEX_LINE])
        for at in range(0, len(data), _HEX_LINE)
    ]
