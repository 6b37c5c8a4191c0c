"""The timeline of a message: its events, each with its place, its evidence and how certain it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.querying.table import row_lines
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.showing import counted, escape, printable
from rocketmq_reindex.udfs.times import show_time

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

    That it was made comes first: a client notes the time at which it sends before it stamps the message (``TraceBean``).
    """
    return sorted(
        events,
        key=lambda event: (
            event.what != "born",
            event.time is None,
            event.time or 0,
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
class TraceResult(Result):
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
            raise InputError(f"nothing found, and some of the stores could not be read: {lost}")
        self.exit = ExitStatus.DONE if self.messages else ExitStatus.FOUND

    def stderr_lines(self) -> list[str]:
        """Return the warnings, and the error."""
        return [*(f"warning: {warning}" for warning in self.warnings), *super().stderr_lines()]

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
