"""What ``rmq-reindex trace`` is asked for, and the timeline of a message: its events, with their evidence and certainty."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.querying.question import place_out_of_range
from rocketmq_reindex.jobs.querying.shown import row_lines
from rocketmq_reindex.jobs.store.settings import roots_of
from rocketmq_reindex.storage_format import topics
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.showing import counted, escape, printable
from rocketmq_reindex.udfs.times import show_time

# --------------------------------------------------------------------------------------------------------------------- question
# What the options ask for: which message, in which stores.


@dataclass(frozen=True)
class TracedStore:
    """A store to look in, and how its lines are marked."""

    name: str
    path: str
    commitlogs: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments."""
        return roots_of(self.path, self.commitlogs)


@dataclass(frozen=True)
class Trace:
    """Which message is traced: by ``key``, ``id``, ``unique_key``, ``queue`` with ``queue_offset``, or ``physical``."""

    stores: tuple[TracedStore, ...]
    topic: str | None = None
    key: str | None = None
    id: str | None = None
    unique_key: str | None = None
    queue: int | None = None
    queue_offset: int | None = None
    physical: int | None = None
    max: int = option_table.default_of("max", "trace")
    scan: bool = False
    json: bool = False
    html: str | None = None
    delays: tuple[int, ...] = ()
    """milliseconds of each delay level, from 1 on"""


def trace_settings(given: Mapping[str, Any]) -> Trace:
    """Return what options ask for, by the parser's names. Raises UsageError."""
    values = dict(given)
    named = list(values.pop("stores", ()))
    commitlogs = tuple(map(_place, values.pop("commitlogs", ())))
    if not named:
        raise UsageError("rmq-reindex trace: name a store: --store STORE, or --store NAME=STORE for each of several")
    if commitlogs and len(named) > 1:
        raise UsageError("rmq-reindex trace: --commitlog goes with one --store")
    stores = [store_named(text, commitlogs) for text in named]
    if len({store.name for store in stores}) < len(stores):
        raise UsageError("rmq-reindex trace: two stores have one name: give each its own, as --store a=STORE")
    levels = values.pop("delay_levels", option_table.default_of("delay_levels"))
    return _checked(Trace(tuple(stores), delays=option.parse_delay_levels(levels), **values))


parse_trace: Final = options.reader("trace", trace_settings)
"""Return what the words behind ``trace`` ask for. Raises UsageError."""


def store_named(text: str, commitlogs: tuple[str, ...], option: str = "--store ") -> TracedStore:
    """Return the store that NAME=STORE, or STORE alone, stands for. ``option`` begins the line of a UsageError."""
    name, equals, path = text.partition("=")
    if not equals or "/" in name:
        # A path may hold an equals sign.
        path = text
        name = files.base(text.rstrip("/")) or "store"
    if not path or not name:
        raise UsageError(f"{option}{escape(text)}: give NAME=STORE, or STORE alone")
    return TracedStore(name, _place(path, option), commitlogs)


def _place(path: str, option: str = "--store ") -> str:
    try:
        return files.checked(files.plain(path))
    except InputError as error:
        raise UsageError(f"{option}{error}") from None


def _checked(trace: Trace) -> Trace:
    def refuse(what: str) -> UsageError:
        return UsageError(f"rmq-reindex trace: {what}: see --help")

    asked = [name for name in ("key", "id", "unique_key", "queue", "physical") if getattr(trace, name) is not None]
    if len(asked) != 1:
        raise refuse("ask by one of --key, --id, --unique-key, --queue and --physical")
    if trace.topic is None and asked[0] in ("key", "queue"):
        raise refuse(f"--{asked[0]} needs --topic")
    if (trace.queue is None) != (trace.queue_offset is None):
        raise refuse("--queue and --queue-offset go together")
    if trace.topic is not None and trace.queue is not None and topics.path_component(trace.topic) is None:
        raise refuse(f"--topic {escape(trace.topic)} is not a name that a folder can have")
    if trace.physical is not None and len(trace.stores) > 1:
        raise refuse("--physical goes with one --store")
    if wrong := place_out_of_range(queue=trace.queue, queue_offset=trace.queue_offset, physical=trace.physical):
        raise refuse(wrong)
    if trace.max < 1:
        raise refuse("--max takes a number above 0")
    if "" in (trace.topic, trace.key, trace.id, trace.unique_key):
        raise refuse("a topic, a key and an id have at least one character")
    return trace


# --------------------------------------------------------------------------------------------------------------------- timeline
# The events of a message, each with its place, its evidence and how certain it is.

Certainty = Literal["seen", "follows", "unknown"]
"""``seen``: a record or file says it. ``follows``: it follows from what they say. ``unknown``: they leave it open"""


@dataclass(frozen=True)
class TraceEvent:
    """One line of a timeline. ``time`` is milliseconds since 1970; None for what has no time, as where a group stands now."""

    time: int | None
    store: str
    what: str
    """one word, such as ``stored``"""
    text: str
    evidence: str
    """the record or the file that shows it"""
    certainty: Certainty = "seen"
    phy_offset: int | None = None
    """offset of the record in the log of ``store``"""
    group: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the event as ``trace --json`` prints it."""
        return {
            "time": None if self.time is None else show_time(self.time), "timestamp": self.time, "store": self.store,
            "what": self.what, "text": self.text, "group": self.group, "evidence": self.evidence,
            "physicalOffset": self.phy_offset, "certainty": self.certainty,
        }  # fmt: skip


def in_order(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return events by time; of one time by store and place in its log. Those without a time come last.

    That it was made comes first: a client notes the time at which it sends before it stamps the message (``TraceBean``). So
    what was sent comes before all else of its millisecond, in which a fast broker may have stored it, too.
    """
    return sorted(
        events,
        key=lambda event: (
            event.what != "born",
            event.time is None,
            event.time or 0,
            event.what != "sent",
            event.store,
            INT64_MAX if event.phy_offset is None else event.phy_offset,
        ),
    )


@dataclass(frozen=True)
class TracedMessage:
    """One message and its events, in order of time."""

    message: str
    """its unique key, or where it has none its message id"""
    keys: tuple[str, ...]
    topic: str
    events: tuple[TraceEvent, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the message as ``trace --json`` prints it."""
        events = [event.to_dict() for event in self.events]
        return {"message": self.message, "topic": self.topic, "keys": list(self.keys), "events": events}


@dataclass(repr=False)
class TraceResult(WarnedResult):
    """What happened to the messages that were asked for, each with its timeline."""

    messages: list[TracedMessage] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """what could not be read, and what else is odd"""

    def __iter__(self) -> Any:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, number: int) -> TracedMessage:
        return self.messages[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``rmq-reindex trace --json`` prints."""
        return {"messages": [message.to_dict() for message in self.messages], "warnings": list(self.warnings)}

    def json_parts(self) -> Any:
        """Yield the JSON object in parts."""
        yield json.dumps(self.to_dict())

    def decide(self, lost: str) -> None:
        """Set the exit status. Raises InputError where nothing was found, and something could not be read, as ``lost`` says."""
        if lost and not self.messages:
            raise InputError(f"nothing found: {lost}")
        self.exit = ExitStatus.DONE if self.messages else ExitStatus.FOUND

    def lines(self, width: int | None) -> list[str]:
        """Return the timelines for people."""
        if not self.messages:
            return ["nothing found"]
        lines: list[str] = []
        for message in self.messages:
            keys = f", keys {printable(' '.join(message.keys))}" if message.keys else ""
            lines += [] if not lines else [""]
            lines.append(f"message {printable(message.message)} of {printable(message.topic)}{keys}")
            lines += row_lines([_row(event) for event in message.events], "text", width)
        return lines

    def _facts(self) -> dict[str, str]:
        events = sum(len(message.events) for message in self.messages)
        return {"messages": counted(len(self.messages), "message"), "events": counted(events, "event")}


def _row(event: TraceEvent) -> dict[str, Any]:
    time = "-" if event.time is None else show_time(event.time)
    return {
        "time": time, "store": escape(event.store), "what": event.what, "text": event.text, "evidence": event.evidence,
        "certainty": event.certainty,
    }  # fmt: skip
