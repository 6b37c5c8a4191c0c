"""The pages that search: by the IndexFiles and queues at once, and in the log itself, part by part.

None shows a part as the whole: each says what was looked at, and links to where the search goes on.
"""

from __future__ import annotations

import contextlib
import glob
import heapq
import json
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_reindex.jobs.browsing import facts, options, page_templates, remembered
from rocketmq_reindex.jobs.querying import question, search
from rocketmq_reindex.jobs.store import contents, folders, queue as store_queue, tag_items
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.layouts import string_hash
from rocketmq_reindex.storage_format.queue.units import UNIT, QueueUnits, Unit
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs.times import parse_time, show_time

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.browsing.known_places import KnownPlaces

TEMPLATES: Final = page_templates.SEARCH_TEMPLATES
ASKED: Final = ("topic", "key", "tag", "begin", "end", "id", "queue", "offset", "time", "physical")
SCANNED: Final = ("topic", "queue", "tag", "key", "text", "regex", "since", "until")
FACET_VALUES: Final = 12
"""values of a facet that are shown, the most frequent ones"""
TAG_LOG_BYTES: Final = 64 << 20
"""bytes of the log without tag items that a search for a tag reads; of more of them the queues of the topic are asked"""
UNITS_MAX: Final = 100_000
"""units that such a search looks at, the newest ones"""
READ_MAX: Final = 10_000
"""records that it reads: those of other times are among them"""
TIMES: Final = (100_000_000_000, 250_000_000_000_000)
"""milliseconds that a question for a time may have"""
GO_ON: Final = "until-hit"
EACH: Final = 1
"""seconds after which a search that goes on by itself loads its next part"""
LOADED_AFTER: Final = 1.0
"""seconds without a request, behind which what a search of the log needs is loaded"""
LOADED_SOON: Final = 0.1
"""the same once a form of a search was shown"""
_ENDED_IN: Final = 5.0
_HOUR: Final = 3_600_000
_CURSOR: Final = re.compile(r"(\d{1,4})\.(\d{1,19})(?:\.(\d{1,19}))?", re.ASCII)

# ----------------------------------------------------------------------------------------------------------------------- facets


def facets(rows: Sequence[options.Facts]) -> options.Facts:
    """Return how many of some messages each store, topic, queue, tag and hour has: the most frequent values, and how many more.

    Nothing for less than two messages. A store is one of several, and an hour is of UTC.
    """
    if len(rows) < 2:
        return {}
    found: dict[str, Counter[Any]] = {
        "store": Counter(row["store"] for row in rows), "topic": Counter(row["topic"] for row in rows),
        "queue": Counter((row["topic"], row["queueId"]) for row in rows), "tag": Counter(row["tags"] for row in rows),
        "hour": Counter(row["storeTimestamp"] // _HOUR for row in rows),
    }  # fmt: skip
    told: options.Facts = {}
    for name, counts in found.items():
        ordered = sorted(counts.items(), key=lambda each: (-each[1], str(each[0])))
        values = [_facet(name, value) | {"count": count} for value, count in ordered[:FACET_VALUES]]
        if name != "store" or len(counts) > 1:
            told[name] = {"values": values, "more": len(counts) - len(values)}
    return told


def _facet(name: str, value: Any) -> options.Facts:
    if name == "queue":
        return {"value": f"{value[0]}/{value[1]}", "topic": value[0], "queue": value[1]}
    if name == "hour":
        begin = value * _HOUR
        return {"value": show_time(begin)[:13], "begin": begin, "end": begin + _HOUR}
    return {"value": value}


# ----------------------------------------------------------------------------------------------------------------------- search


def searched(store: TracedStore, words: Sequence[str], delay_levels: str) -> options.Facts:
    """Return what ``query`` finds for these words; of very many messages the newest. Raises UsageError and InputError."""
    query = question.parse_query([store.path, *words, *facts.roots_words(store), "--delay-levels", delay_levels])
    warnings, several = list[str](), query.key is not None or query.tag is not None
    with facts.looking(store, warnings) as (found, notes):
        more = replace(query, max=facts.FOUND_MAX + 1 if several else None, body="text", body_max=contents.BLOCK)
        looked: options.Facts | None = None
        # Bodies are read of those alone that are shown.
        if query.tag is not None and not _is_quick(query, found):
            newest, looked = _by_units(query, found, notes)
        elif several and (query.begin, query.end) != (None, None):
            newest, looked = _by_items(query, found)
        else:
            newest = [*deque(question.answer(more, found), facts.FOUND_MAX + 1)]
        cut = len(newest) > facts.FOUND_MAX
        rows = [question.row_of(each, found.log, more, notes) for each in newest[-facts.FOUND_MAX :]]
    # An id has no --max: its command gives all.
    told = [*words, *(["--max", str(facts.FOUND_MAX)] if cut and several else [])]
    return {
        "store": store.name, "messages": rows, "more": cut, "unread": bool(notes.lost and not rows), "looked": looked,
        "warnings": warnings, "command": facts.command("query", store, told),
    }  # fmt: skip


def _is_quick(query: question.Query, found: search.Search) -> bool:
    """Return whether tag items say where a tag is, but for a short part of the log, which is read."""
    assert query.topic is not None
    assert query.tag is not None
    indexed = tag_items.parts_with_tag_items(found.index, found.log)
    rest = search.UnindexedTag(found.log, query.topic, query.tag, tag_items.parts_without(indexed, found.log))
    return rest.log_bytes <= TAG_LOG_BYTES


def _by_units(
    query: question.Query, found: search.Search, notes: folders.Notes
) -> tuple[list[store_queue.ServedMessage], options.Facts]:
    """Return the newest messages of a topic with a tag, in the order of the log, by the tagsCode of its units.

    And how many units were looked at: those of the newest records of the topic, whatever their queue.
    """
    topic, tag = query.topic or "", query.tag or ""
    code, of_delays = string_hash(tag), topic == topics.SCHEDULE_TOPIC
    kept: dict[int, store_queue.ServedMessage] = {}
    looked, read, all_units, whole = 0, 0, 0, True
    opened = [
        queue for number in found.queues.ids(topic)
        if (queue := found.queues.open(topic, number, found.log, notes)) is not None
    ]  # fmt: skip
    try:
        for queue in opened:
            queue.units.left = UNITS_MAX
            all_units += queue.units.end - queue.units.begin
        for unit in heapq.merge(*(_newest(queue.units) for queue in opened), key=lambda unit: -unit.phy_offset):
            if looked >= UNITS_MAX or read >= READ_MAX or len(kept) > facts.FOUND_MAX:
                whole = False
                break
            looked += 1
            # A unit of the delay topic has a time there, one with an extension its address (ConsumeQueueExt.isExtAddr).
            if unit.tags_code != code and not of_delays and unit.tags_code >= -layouts.INT32_MAX - 1:
                continue
            read, message = read + 1, found.log.message(unit.phy_offset)
            if not isinstance(message, Message) or not message.is_indexed or not message.has_tag(topic, tag):
                continue
            if query.in_time(message.store_time):
                kept[message.phy_offset] = store_queue.ServedMessage(message, None)
    except errors.InputError as error:
        whole = False
        notes.add("units", str(error))
    finally:
        for queue in opened:
            queue.close()
    if not kept:
        found.say_what_is_unknown(topic, None, tag)
    told = {"what": "units", "count": looked, "all": all_units, "whole": whole}
    return [kept[at] for at in sorted(kept)], told


def _by_items(query: question.Query, found: search.Search) -> tuple[list[store_queue.ServedMessage], options.Facts]:
    """Return the newest messages with a key or tag that were stored in a span of time, in the order of the log.

    And how many of all ages were looked at: those of a key of very many messages are not all read to find old ones.
    """
    topic, looked, taken = query.topic or "", 0, 0

    def in_time(time: int) -> bool:
        nonlocal looked, taken
        looked += 1
        if looked > READ_MAX:
            return True
        is_in_time = query.in_time(time)
        taken += is_in_time
        return is_in_time

    # Behind so many records all are taken, so that the search ends soon; they are left out again.
    most = facts.FOUND_MAX + 1
    if query.tag is not None:
        messages = [*found.by_tag(topic, query.tag, in_time, most)]
    else:
        messages = [*found.by_key(topic, query.key or "", in_time, most)]
    if not messages:
        found.say_what_is_unknown(topic, None, query.tag)
    kept = [store_queue.ServedMessage(each, None) for each in messages[max(0, len(messages) - taken) :]]
    return kept, {"what": "messages", "count": min(looked, READ_MAX), "all": None, "whole": looked <= READ_MAX}


def _newest(units: QueueUnits) -> Iterator[Unit]:
    """Yield the units of a queue from its end on."""
    for position in range(units.end - 1, units.begin - 1, -1):
        unit = units.at(position)
        if unit.kind == UNIT:
            yield unit


# ----------------------------------------------------------------------------------------------------------------------- cursor


class ScanCursor(NamedTuple):
    """A place in a search: the number of a store among those that are searched, and an offset of its log."""

    store: int = 0
    offset: int = 0
    end: int = -1
    """where the records ended, if zeros alone were seen from there to ``offset``: a broker may write there later; else -1"""

    def __str__(self) -> str:
        return f"{self.store}.{self.offset}" + (f".{self.end}" if self.end >= 0 else "")


def read_cursor(text: str | None, stores: int) -> ScanCursor:
    """Return the place that a text stands for; the beginning for None. Raises UsageError for what is none of ``stores``."""
    if text is None:
        return ScanCursor()
    found = _CURSOR.fullmatch(text)
    cursor = ScanCursor(int(found[1]), int(found[2]), int(found[3] or -1)) if found else ScanCursor(stores)
    if cursor.store >= stores or cursor.offset > layouts.INT64_MAX or cursor.end > cursor.offset:
        raise errors.UsageError(f"cursor: {showing.escape(text, 40)} is no place in this search: leave it out to begin")
    return cursor


# ------------------------------------------------------------------------------------------------------------------------ pages


class LoadedAhead:
    """Loads in a thread what a first search in the log needs: numba, Arrow and the compiled loops take a second of a core.

    Nothing is compiled so: where loops have to be, the form says it, and the search does it.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._last, self._quiet = 0.0, LOADED_AFTER
        self.is_wanted = self.is_alone = False
        """whether it is done at all: for pages that are served; and whether this process does nothing beside"""

    def noted(self) -> None:
        """Note that a page is asked for: it is loaded once none was for a while, so that no page waits for it."""
        self._last = time.monotonic()
        with self._lock:
            if self._thread is None and self.is_wanted and not self._ended.is_set():
                thread = threading.Thread(target=self._load, name="browse: load", daemon=True)
                # The system may give no more threads.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def hurry(self) -> None:
        """Note that a search is near: its form is shown."""
        self._quiet = LOADED_SOON

    def _load(self) -> None:
        while (left := self._last + self._quiet - time.monotonic()) > 0:
            if self._ended.wait(min(left, LOADED_SOON)):
                return
        with contextlib.suppress(OSError, errors.ReindexError):
            if watch.compiling_line(watch.SCAN_LOOP):
                return
            self.searching().load(self._ended.is_set)

    def searching(self) -> ModuleType:
        """Return the module that searches: it brings numpy, Arrow and numba."""
        from rocketmq_reindex.jobs.browsing import searching

        with self._lock:
            if self.is_alone:
                searching.spare_memory()
                self.is_alone = False
        return searching

    def close(self) -> None:
        """Begin nothing more, and wait a little for what has begun: a process must not end amid it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_ENDED_IN)


class SearchPages:
    """The pages that search in the stores that were named. ``delay_levels`` are those of the command."""

    def __init__(self, stores: options.OpenedStores, hidden: Callable[[str], str]) -> None:
        """Take what gives the text that a form may send back by ``hidden``."""
        self._stores, self._hidden = stores, hidden
        self._known: KnownPlaces | None = None
        self._parts, self.ahead = remembered.Remembered(), LoadedAhead()

    def shown(self) -> list[options.Address]:
        """Return the addresses."""
        return [
            options.Address("/search", "search", ("store", *ASKED), self._search),
            options.Address("/scan", "scan", ("store", *SCANNED, "cursor", "go"), self._scan),
        ]

    def _values(self, given: options.Asked, names: Sequence[str]) -> options.Facts:
        values = {name: self._hidden(given.given.get(name, "")) for name in names}
        return {"names": [*self._stores.by_name], "asked": values}

    def _search(self, given: options.Asked) -> options.PageFacts:
        stores, words = self._stores.wanted(given), given.words(ASKED)
        self.ahead.hurry()
        results = [self._searched(store, words) for store in stores] if words else []
        rows = [{"store": each["store"], **row} for each in results for row in each["messages"]]

        def narrowed(name: str, value: options.Facts) -> str:
            """Return the address of a search for a value of a facet; "" where this one cannot be narrowed so."""
            if name == "tag" and value["value"] and "topic" in given.given:
                fields = {"topic": given.given["topic"], "tag": value["value"]}
            elif name == "hour" and {"key", "tag"} & given.given.keys() and TIMES[0] <= value["begin"] < TIMES[1]:
                fields = {**_without_format(given), "begin": value["begin"], "end": value["end"] - 1}
            else:
                return ""
            return options.url("search", **{"store": given.given.get("store"), **fields})

        def deeper(store: str) -> str:
            """Return the address of a search of the log for the same."""
            end = given.given.get("end")
            fields = {"topic": glob.escape(given.given.get("topic", "")), "since": given.given.get("begin")}
            until = None if end is None else parse_time(end, "end")
            named = {"key": given.given.get("key") or given.given.get("id"), "tag": given.given.get("tag")}
            return options.url("scan", store=store, **fields, **named, until=None if until is None else until + 1)

        more = {"narrowed": narrowed, "deeper": deeper, "named": bool({"key", "tag", "id"} & given.given.keys())}
        return options.PageFacts("Search", {"results": results, "facets": facets(rows)}, {**self._values(given, ASKED), **more})

    def _searched(self, store: TracedStore, words: Sequence[str]) -> options.Facts:
        """Return what a store has; of one that cannot be searched why: another one may have the message. Raises UsageError."""
        try:
            return searched(store, words, self._stores.settings.delay_levels)
        except errors.UsageError:
            raise
        except errors.ReindexError as error:
            told = {"store": store.name, "error": str(error), "messages": [], "more": False, "unread": False, "looked": None}
            return told | {"warnings": [], "command": facts.command("query", store, words)}

    def _scan(self, given: options.Asked) -> options.PageFacts:
        stores, words = self._stores.wanted(given), given.words(SCANNED)
        going = given.given.get("go", "")
        if going not in ("", GO_ON):
            raise errors.UsageError(f"go: {showing.escape(going, 40)} is none: take {GO_ON}, or leave it out")
        more = {**self._values(given, SCANNED), "narrowed": None, "go_on": "", "go_until": "", "stop": "", "every": EACH}
        if not words:
            if {"cursor", "go"} & given.given.keys():
                raise errors.UsageError("cursor and go: go with what is searched for")
            self.ahead.hurry()
            return options.PageFacts(
                "Search the log", {"part": None, "facets": {}}, {**more, "compiles": watch.compiling_line(watch.SCAN_LOOP)}
            )
        cursor = read_cursor(given.given.get("cursor"), len(stores))
        searching = self.ahead.searching()
        self._known = self._known or searching.known_places.KnownPlaces()
        asked_for = searching.LogSearch(stores, words, self._stores.settings.delay_levels, self._known)
        question = json.dumps([[store.name for store in stores], words, str(cursor)])
        part = self._parts.ask_logs(stores, question, lambda: asked_for.part(cursor))

        def narrowed(name: str, value: options.Facts) -> str:
            """Return the address of the same search for a value of a facet alone, from the log's beginning on."""
            fields: options.Facts = {**_without_format(given), "cursor": None}
            if name == "topic":
                fields["topic"] = glob.escape(value["value"])
            elif name == "queue":
                fields |= {"topic": glob.escape(value["topic"]), "queue": value["queue"]}
            elif name == "hour" and TIMES[0] <= value["begin"] < TIMES[1]:
                fields |= {"since": value["begin"], "until": value["end"]}
            elif name == "hour":
                return ""
            elif name == "store" or value["value"]:
                fields[name] = value["value"]
            else:
                return ""
            return options.url("scan", **fields)

        fields, headers = _without_format(given), dict[str, str]()
        more |= {"narrowed": narrowed}
        if part["next"]:
            next_one = {**fields, "cursor": part["next"]}
            more["go_on"], more["go_until"] = (options.url("scan", **{**next_one, "go": go}) for go in (None, GO_ON))
            # What has to be read by a person ends it.
            if going and not (part["messages"] or part["warnings"] or part["damage"]["places"]):
                headers["refresh"] = f"{EACH}; url={more['go_until']}"
                more["stop"] = options.url("scan", **{**fields, "go": None})
        title = f"Search the log: {showing.counted(len(part['messages']), 'hit')}"
        return options.PageFacts(title, {"part": part, "facets": facets(part["messages"])}, more, 200, headers)


def _without_format(given: options.Asked) -> dict[str, str]:
    return {name: value for name, value in given.given.items() if name != "format"}
