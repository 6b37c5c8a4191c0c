"""What ``rmq-reindex consumers`` is asked for, and its result: where consumer groups stand in the queues of a store."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.option import Merge
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.querying.shown import row_lines
from rocketmq_reindex.jobs.store.consumer_offsets import OffsetDifference
from rocketmq_reindex.jobs.store.settings import repeated, roots_of
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, form, printable
from rocketmq_reindex.udfs.times import show_time

# --------------------------------------------------------------------------------------------------------------------- question
# What the options ask for.


@dataclass(frozen=True)
class ConsumersQuestion:
    """Which groups are looked at. ``consumer_offsets`` are files of offsets; without any they are those of the store.

    ``to_time`` is milliseconds since 1970.
    """

    store: str
    commitlogs: tuple[str, ...] = ()
    consumer_offsets: tuple[str, ...] = ()
    merge: Merge = option_table.default_of("merge")
    topic: str | None = None
    group: str | None = None
    bounds: bool = False
    out: str | None = None
    to_time: int | None = None
    json: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments."""
        return roots_of(self.store, self.commitlogs)

    def is_asked(self, group: str, topic: str) -> bool:
        """Return whether a group's queues of a topic are asked for."""
        return self.group in (None, group) and self.topic in (None, topic)


def consumers_settings(given: Mapping[str, Any]) -> ConsumersQuestion:
    """Return what options ask for, by the parser's names. Raises UsageError."""
    values = dict(given)
    named, logs = values.pop("consumer_offsets", None) or (), values.pop("commitlogs", None) or ()
    if not values["store"]:
        raise _refusal("name a STORE")
    try:
        store, *commitlogs = map(files.checked, (values.pop("store"), *logs))
        offsets = tuple(files.checked(files.plain(path)) for path in named)
    except InputError as error:
        raise _refusal(str(error)) from None
    for places, name in ((commitlogs, "--commitlog"), (offsets, "--consumer-offsets")):
        for number in repeated([files.canonical(place) for place in places]):
            raise _refusal(f"{name} {escape(places[number])} is named twice: name it once")
    if "" in (values.get("topic"), values.get("group")):
        raise _refusal("a topic and a group have at least one character")
    if values.get("to_time") is not None and (values.get("out") is None or values.get("group") is None):
        raise _refusal("--to-time goes with --out and --group")
    return ConsumersQuestion(store, commitlogs=tuple(commitlogs), consumer_offsets=offsets, **values)


def _refusal(what: str) -> UsageError:
    return UsageError(f"rmq-reindex consumers: {what}: see --help")


parse_consumers: Final = options.reader("consumers", consumers_settings)
"""Return what the words behind ``consumers`` ask for. Raises UsageError."""

# ----------------------------------------------------------------------------------------------------------------------- result
# Where groups stand.

State = Literal["in the queue", "expired", "behind the end", "no such queue", "no offset", "unknown"]
"""``expired``: messages that it had not read are gone. ``behind the end``: it misses what is sent next. ``no such queue``: the
store has none. ``no offset``: the queue has messages, the group no offset. ``unknown``: the queue's files cannot be read"""
MISSING: Final = ("behind the end", "no such queue", "unknown")
"""states in which a group misses messages that are sent later, or may do so"""


@dataclass(frozen=True)
class GroupEvidence:
    """A record that shows that a group was given a message: the group was past ``offset`` then. ``time`` is milliseconds."""

    offset: int
    what: str
    """``retry``, ``dead letter``, ``pop`` or ``trace``"""
    record: str
    """topic/queue/offset of the record"""
    time: int


@dataclass(frozen=True)
class GroupOffset:
    """One queue of a group. Offsets are queue offsets, times milliseconds since 1970; None is what is not known."""

    group: str
    topic: str
    queue_id: int
    state: State
    offset: int | None = None
    """the next message that the group is given"""
    source: str | None = None
    """the file that says it"""
    first: int | None = None
    """the queue's first message whose record the log still has"""
    end: int | None = None
    """the offset behind the queue's last message"""
    next_time: int | None = None
    """when the next message was stored"""
    evidence: GroupEvidence | None = None

    @property
    def left(self) -> int | None:
        """Messages that the group has not been given."""
        if self.offset is None or self.end is None:
            return None
        return max(self.end - max(self.offset, self.first or 0), 0)

    @property
    def expired(self) -> int:
        """Messages that were gone before the group was given them."""
        if self.state != "expired" or self.offset is None or self.first is None:
            return 0
        return self.first - self.offset

    @property
    def at_least(self) -> int | None:
        """The lowest offset at which the group may stand, as the log shows; None where it shows nothing."""
        return None if self.evidence is None else self.evidence.offset + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the row as ``consumers --json`` prints it."""
        return {
            "group": self.group, "topic": self.topic, "queueId": self.queue_id, "state": self.state, "offset": self.offset,
            "source": self.source, "first": self.first, "end": self.end, "left": self.left, "expired": self.expired,
            "nextTime": None if self.next_time is None else show_time(self.next_time), "nextTimestamp": self.next_time,
            "atLeast": self.at_least, "atMost": None if self.at_least is None else self.end,
            "evidence": None if self.evidence is None else dataclasses.asdict(self.evidence),
        }  # fmt: skip


@dataclass(frozen=True)
class OffsetChange:
    """An offset of the new file that is another one than the old files say, and why. ``before`` is None where they say none."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the change as ``consumers --json`` prints it."""
        return {
            "group": self.group, "topic": self.topic, "queueId": self.queue_id, "before": self.before, "after": self.after,
            "why": self.why,
        }  # fmt: skip


@dataclass(repr=False)
class ConsumersResult(WarnedResult):
    """Where consumer groups stand: a row for each queue of each group. It can be iterated, counted and indexed."""

    groups: list[GroupOffset] = field(default_factory=list)
    differences: list[OffsetDifference] = field(default_factory=list)
    """where the files of offsets differ"""
    changes: list[OffsetChange] = field(default_factory=list)
    """of the new file"""
    out: str | None = None
    """the new file; None where none was asked for"""
    merge: Merge = "highest"
    warnings: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[GroupOffset]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> GroupOffset:
        return self.groups[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``rmq-reindex consumers --json`` prints."""
        return {
            "groups": [row.to_dict() for row in self.groups],
            "differences": [difference.to_dict() for difference in self.differences],
            "changes": [change.to_dict() for change in self.changes],
            "out": self.out,
            "warnings": list(self.warnings),
        }

    def json_parts(self) -> Iterator[str]:
        """Yield the JSON object in parts."""
        yield json.dumps(self.to_dict())

    def decide(self) -> None:
        """Set the exit status: FOUND where nothing was found, or a group stands where it misses messages and no file is
        written."""
        missing = self.out is None and any(row.state in MISSING for row in self.groups)
        self.exit = ExitStatus.FOUND if missing or not self.groups else ExitStatus.DONE

    def lines(self, width: int | None) -> list[str]:
        """Return what is said to people."""
        lines = [] if self.groups else ["no group found"]
        for (group, topic), rows in itertools.groupby(self.groups, key=lambda row: (row.group, row.topic)):
            lines += [*([""] if lines else []), *_group_lines(group, topic, list(rows), width)]
        if self.differences:
            count = counted(len(self.differences), "offset differs", "offsets differ")
            lines += ["", f"{count} between the files: the {self.merge} is taken (--merge)"]
            lines += row_lines([_difference_row(difference) for difference in self.differences], "files", width)
        if self.out is not None:
            lines += ["", f"wrote    {escape(self.out)}: {counted(len(self.changes), 'offset')} changed"]
            lines += row_lines([_change_row(change) for change in self.changes], "why", width) if self.changes else []
        return lines

    def _facts(self) -> dict[str, str]:
        left = sum(row.left or 0 for row in self.groups)
        groups = len({row.group for row in self.groups})
        return {"groups": counted(groups, "group"), "left": counted(left, "message")}


def _group_lines(group: str, topic: str, rows: list[GroupOffset], width: int | None) -> list[str]:
    known = [row.left for row in rows if row.left is not None]
    waiting = [row.next_time for row in rows if row.left and row.next_time is not None]
    told = f"{counted(sum(known), 'message')} left in {counted(len(known), 'queue')}" if known else "no offset"
    since = f", the oldest stored at {show_time(min(waiting))}" if waiting else ""
    unknown = f"; no offset in {counted(len(rows) - len(known), 'queue')}" if 0 < len(known) < len(rows) else ""
    head = f"group {printable(group)} of {printable(topic)}: {told}{since}{unknown}"
    return [head, *row_lines([_row(row) for row in rows], "note", width)]


def _row(row: GroupOffset) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "queue": row.queue_id, "offset": row.offset, "first": row.first, "end": row.end, "left": row.left,
        "next stored at": None if row.next_time is None else show_time(row.next_time),
    }  # fmt: skip
    return {**shown, "note": _note(row)}


def _note(row: GroupOffset) -> str:
    notes = []
    if row.state == "expired":
        notes.append(f"{counted(row.expired, 'message')} that it had not read {form(row.expired, 'is', 'are')} gone")
    elif row.state == "behind the end":
        notes.append("behind the queue's end: it misses what is sent next")
    elif row.state == "no such queue":
        notes.append("the store has no such queue: it misses what is sent next")
    elif row.state == "no offset":
        notes.append("no offset: the broker or its clients decide where it begins")
    elif row.state == "unknown":
        notes.append("the queue's files cannot be read")
    if row.evidence is not None:
        shown = f"{row.evidence.what} {row.evidence.record} at {show_time(row.evidence.time)}"
        notes.append(f"read at least to {row.at_least}, at most to {row.end}: {shown}")
    return "; ".join(notes) or "-"


def _difference_row(difference: OffsetDifference) -> dict[str, Any]:
    said = ", ".join(f"{offset} in {escape(path)}" for path, offset in difference.offsets.items())
    return {
        "group": difference.group, "topic": difference.topic, "queue": difference.queue_id, "taken": difference.taken,
        "files": said,
    }  # fmt: skip


def _change_row(change: OffsetChange) -> dict[str, Any]:
    return {
        "group": change.group, "topic": change.topic, "queue": change.queue_id, "before": change.before, "after": change.after,
        "why": change.why,
    }  # fmt: skip
