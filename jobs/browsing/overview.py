"""The overview pages: the log by its segments, the disk, messages over time, and where consumer groups stand.

Each page gives what a command says, or what is sampled and said to be so; and what it looked at is remembered while the store
looks the same.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from rocketmq_reindex.jobs.browsing import facts, log_sample, opened, options as browsing_asked, rates, remembered, templates
from rocketmq_reindex.jobs.browsing.options import Facts
from rocketmq_reindex.jobs.consumers import run as consumers_run
from rocketmq_reindex.jobs.consumers.standing import ConsumersQuestion, ConsumersResult
from rocketmq_reindex.jobs.store import consumer_offsets, contents, folders
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import errors, layouts, showing

ROWS: Final = 200
"""queues of groups that a page shows"""
PLACES_MAX: Final = 2000
"""queues of groups that are looked at for one page: of more, a group has to be named, and of one with more a topic, too"""
NAMES: Final = 500
"""groups, or topics of a group, that a page names then"""
TOPICS_SHOWN: Final = 40
HOURS_MAX: Final = 24 * 366 * 10
STORES_IN: Final = 0.2
"""seconds that the page of all stores waits for what they say"""
WITHOUT_END: Final = 365.0 * 86_400

# ------------------------------------------------------------------------------------------------------------------------- disk
# What lies on the disk, by part and by topic.

PARTS: Final = ("commitlog", "consumequeue", "index", "timer", "config", "RocksDB", "other")
_PART_OF: Final = {
    layouts.COMMITLOG: "commitlog", layouts.QUEUES: "consumequeue", layouts.BATCH_QUEUES: "consumequeue",
    layouts.EXT_QUEUES: "consumequeue", layouts.INDEX: "index", layouts.CONFIG: "config", "timerlog": "timer",
    "timerwheel": "timer", layouts.SEPARATE: "RocksDB",
}  # fmt: skip


def disk(store: TracedStore) -> Facts:
    """Return what the files of a store take, and the topics by their queues' files and by a sample of the log.

    Raises OSError and InputError.
    """
    states, warnings = remembered.states_of(store), list[str]()
    sizes, taken, count = Counter[str](), Counter[str](), Counter[str]()
    topics = Counter[str]()
    databases = {_folder(state.name) for state in states.files if state.name.endswith("/CURRENT")}
    for state in states.files:
        part = _part(state.name, databases)
        sizes[part] += state.size
        taken[part] += state.allocated
        count[part] += 1
        names = state.name.split("/")
        if part == "consumequeue" and len(names) > 2:
            topics[names[1]] += state.size
    if not states.whole:
        warnings.append(
            f"the store has more than {remembered.FILES_MAX:,} files and folders, or a link to a folder: some are left out"
        )
    notes = folders.Notes(warnings.append, warnings.append)
    with folders.failures_as_errors("STORE"), contextlib.closing(contents.StoreLog(store.roots, notes)) as log:
        sample = log_sample.sample(log)
    notes.close()
    by_log = _log_bytes(sample)
    every = sorted({*topics, *by_log}, key=lambda topic: (-by_log[topic] - topics[topic], topic))
    return {
        "parts": [{"part": p, "files": count[p], "bytes": sizes[p], "allocated": taken[p]} for p in PARTS if count[p]],
        "bytes": sizes.total(), "allocated": taken.total(), "files": count.total(), "whole": states.whole,
        "topics": [
            {"topic": topic, "queueBytes": topics.get(topic), "logBytes": by_log.get(topic)} for topic in every[:TOPICS_SHOWN]
        ],
        "topicCount": len(every), "sampled": sum(place.records.total() for place in sample),
        "sampleIsWhole": all(place.whole for place in sample), "warnings": warnings, "command": facts.command("info", store),
    }  # fmt: skip


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _part(name: str, databases: set[str]) -> str:
    if _folder(name) in databases:
        return "RocksDB"
    top = name.split("/", 1)[0]
    if top.startswith("dledger-"):
        return "commitlog"
    return _PART_OF.get(top.partition(".")[0] if top.startswith("timerwheel") else top, "other")


def _log_bytes(sample: Sequence[log_sample.LogPlace]) -> Counter[str]:
    """Return the bytes of the log by topic; what could not be sampled is shared out alike."""
    found = Counter[str]()
    total, seen = sum(place.span for place in sample), sum(place.span for place in sample if place.whole or place.records)
    for topic in {topic for place in sample for topic in place.records}:
        share = sum(place.share(topic) for place in sample)
        whole = all(place.whole for place in sample)
        found[topic] = round(share) if whole else round(share * total / seen)
    return found


# -------------------------------------------------------------------------------------------------------------------- consumers
# Where groups stand, as ``consumers`` says it.


def consumers(store: TracedStore, group: str | None, topic: str | None) -> Facts:
    """Return where the consumer groups of a store stand; of very many queues only which groups there are, or topics of one.

    Raises InputError where the store has no file of offsets.
    """
    question = ConsumersQuestion(store.path, commitlogs=store.commitlogs, group=group, topic=topic)
    given = (("group", group), ("topic", topic))
    words = browsing_asked.option_words((name, value) for name, value in given if value is not None)
    told: Facts = {"command": facts.command("consumers", store, words), "groups": [], "tooMany": []}
    if (many := _named(store, question)).total() > PLACES_MAX:
        named = sorted(many.items())
        rows = [{"group": group or name, "topic": topic if group is None else name, "queues": count} for name, count in named]
        return told | {"tooMany": rows, "warnings": []}
    result, warnings = ConsumersResult(), list[str]()
    notes = folders.Notes(warnings.append, warnings.append)
    with folders.failures_as_errors("STORE"):
        consumers_run.run(question, result, notes, errors.NoListener())
    notes.close()
    return told | {"groups": [row.to_dict() for row in result.groups], "warnings": warnings}


def _named(store: TracedStore, question: ConsumersQuestion) -> Counter[str]:
    """Return how many queues of each group the store's files name, of those that are asked for; of one group, of each topic."""
    found, silent = Counter[str](), folders.Notes.silent()
    with folders.failures_as_errors("STORE"):
        for file in consumer_offsets.of_store(store.path, silent):
            places = (place for place in file.offsets(silent) if question.is_asked(place.group, place.topic))
            found.update(place.group if question.group is None else place.topic for place in places)
    return found


# ------------------------------------------------------------------------------------------------------------------------ pages


class Overview:
    """The pages, and what is remembered for them and for others.

    Pages that are no longer ``live`` are files: they wait for every answer, and do not say when it was looked at.
    """

    def __init__(self, stores: browsing_asked.OpenedStores, memory: remembered.Remembered, live: bool = True) -> None:
        self._stores, self._memory, self._live = stores, memory, live

    def pages(self) -> list[browsing_asked.Address]:
        """Return the pages."""
        shown = browsing_asked.Address
        return [
            shown("/log", "log", ("store", "from"), self._log),
            shown("/disk", "disk", ("store",), self._disk),
            shown("/rates", "rates", ("store", "topic", "hours"), self._rates),
            shown("/consumers", "consumers", ("store", "group", "topic", "from"), self._consumers),
        ]

    def all_stores(self) -> list[Facts]:
        """Return each store with what ``info`` says, or why it says nothing; both are None where it takes longer."""
        stores = list(self._stores.by_name.values())
        told = self._memory.ask_all(stores, "info", facts.info, STORES_IN if self._live else WITHOUT_END)
        rows = [_told(store, answer) for store, answer in zip(stores, told, strict=True)]
        return rows if self._live else [row | {remembered.LOOKED_AT: None} for row in rows]

    def _ask(self, store: TracedStore, question: str, make: Callable[[], Facts]) -> Facts:
        found = self._memory.ask(store, question, make)
        return found if self._live else found | {remembered.LOOKED_AT: None}

    def overview(self, store: TracedStore) -> Facts:
        """Return what the page of a store shows. Raises InputError."""
        return self._ask(store, "overview", lambda: facts.overview(store))

    def _log(self, asked: browsing_asked.Asked) -> browsing_asked.PageFacts:
        store, first = self._stores.named(asked), asked.number("from")

        def made() -> Facts:
            with folders.failures_as_errors("STORE"):
                return log_sample.segments(store.roots, first) | {"command": facts.command("info", store)}

        # What checks and files of findings say may change while the store does not.
        found = log_sample.with_damage(self._ask(store, f"log {first}", made), opened.known_damage(self._stores, store))
        line = Markup(templates.log_line(found["line"])) if found["line"] else ""
        return browsing_asked.PageFacts(f"Log of {store.name}", {"store": store.name, **found}, {"drawn": line})

    def _disk(self, asked: browsing_asked.Asked) -> browsing_asked.PageFacts:
        store = self._stores.named(asked)
        found = self._ask(store, "disk", lambda: disk(store))
        return browsing_asked.PageFacts(f"Disk of {store.name}", {"store": store.name, **found}, _disk_bars(found))

    def _rates(self, asked: browsing_asked.Asked) -> browsing_asked.PageFacts:
        store, hours, topic = self._stores.named(asked), asked.number("hours"), asked.given.get("topic")
        if hours is not None and not 0 < hours <= HOURS_MAX:
            raise errors.UsageError(f"hours: takes 1 to {HOURS_MAX}")

        def made() -> Facts:
            warnings = list[str]()
            with facts.looking(store, warnings) as (search, notes):
                found = rates.rates(search, notes, hours, topic)
            return found | {"warnings": warnings, "command": facts.command("info", store, ["--json"])}

        found = self._ask(store, f"rates {hours} {topic}", made)
        told = {"store": store.name, "topic": topic, "hours": hours, **found}
        total, plots = _rate_plots(found)
        label = templates.seconds_text(found["binSeconds"] or 0.0)
        status = 404 if topic is not None and not found["queues"] else 200
        return browsing_asked.PageFacts(
            f"Messages over time in {store.name}", told, {"drawn": total, "plots": plots, "label": label}, status
        )

    def _consumers(self, asked: browsing_asked.Asked) -> browsing_asked.PageFacts:
        group, topic, first = asked.given.get("group"), asked.given.get("topic"), asked.number("from") or 0
        results, rows = [], list[Facts]()
        for store in self._stores.wanted(asked):
            told: Facts = {"store": store.name, "error": None, "warnings": [], "tooMany": [], "queues": 0, "left": 0}
            told |= {"tooManyCount": 0, "previous": None, "next": None}
            try:
                found = self._ask(store, f"consumers {[group, topic]!r}", lambda s=store: consumers(s, group, topic))  # type: ignore[misc]
            except errors.ReindexError as error:
                results.append(told | {"error": str(error), "command": facts.command("consumers", store)})
                continue
            groups, many = found.pop("groups"), found.pop("tooMany")
            if many:
                told |= {
                    "tooMany": many[first : first + NAMES], "tooManyCount": len(many),
                    "previous": max(0, first - NAMES) if first else None,
                    "next": first + NAMES if first + NAMES < len(many) else None,
                }  # fmt: skip
            rows += [{"store": store.name, **row} for row in groups]
            results.append(told | found | {"queues": len(groups), "left": sum(row["left"] or 0 for row in groups)})
        shown = rows[first : first + ROWS]
        behind = first + ROWS if first + ROWS < len(rows) else None
        told = {"group": group, "topic": topic, "stores": results, "groups": shown, "count": len(rows), "next": behind,
                "previous": max(0, first - ROWS) if first else None}  # fmt: skip
        return browsing_asked.PageFacts("Consumer groups", told)


def _told(store: TracedStore, answer: Facts | Exception | None) -> Facts:
    told: Facts = {"store": store.name, "place": showing.escape(store.path), "info": None, "error": None, "lookedAt": None}
    told["command"] = facts.command("info", store)
    if isinstance(answer, errors.ReindexError):
        return told | {"error": str(answer)}
    if isinstance(answer, OSError | ValueError):
        return told | {"error": showing.reason(answer)}
    if isinstance(answer, Exception):
        raise answer
    if answer is not None:
        told["lookedAt"] = answer.pop(remembered.LOOKED_AT)
        told["info"] = answer
    return told


def _disk_bars(found: Facts) -> Facts:
    texts = [_sizes_text(part["bytes"], part["allocated"]) for part in found["parts"]]
    named = [(part["part"], part["bytes"]) for part in found["parts"]]
    logs = [(each["topic"], each["logBytes"]) for each in found["topics"] if each["logBytes"]]
    queues = [(each["topic"], each["queueBytes"]) for each in found["topics"] if each["queueBytes"]]
    about = "" if found["sampleIsWhole"] else "about "
    return {
        "parts_drawn": Markup(templates.sized(named, texts)),
        "log_drawn": Markup(templates.sized(logs, [about + templates.bytes_text(size) for _, size in logs], "c1")),
        "queues_drawn": Markup(templates.sized(queues, [templates.bytes_text(size) for _, size in queues], "c2")),
    }


def _sizes_text(size: int, taken: int) -> str:
    return (
        templates.bytes_text(size) if size == taken else f"{templates.bytes_text(size)}, {templates.bytes_text(taken)} on disk"
    )


def _rate_plots(found: Facts) -> tuple[Markup, list[Facts]]:
    """Return the plot of all messages, and those of the topics."""

    def drawn(bins: Sequence[int], name: str, small: bool) -> Markup:
        label = f"{name}: {sum(bins):,} messages from {found['begin']} to {found['end']}, at most {max(bins):,} in a column"
        return Markup(templates.columns(bins, label, small=small))

    plots = [
        {"topic": each["topic"], "drawn": drawn(each["bins"], each["topic"], True), "messages": each["messages"],
         "most": max(each["bins"])}
        for each in found["topics"]
    ]  # fmt: skip
    return drawn(found["total"], "all topics", False) if found["total"] else Markup(), plots
