"""The options of ``rmq-reindex replay``, and what a replay ends with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rocketmq_reindex.jobs.command import options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.exporting.options import NAME_SHOWN, ExportSettings, export_settings, topic_lines
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.showing import counted, escape, reason

# ---------------------------------------------------------------------------------------------------------------------- options

ACCESS_KEY, SECRET_KEY = "RMQ_REINDEX_ACCESS_KEY", "RMQ_REINDEX_SECRET_KEY"
_IN_FILE: Final = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
_CREDENTIALS_MAX: Final = 1 << 16
_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
"""a name that a broker takes (``TopicValidator``)"""
_OWN: Final = ("to", "journal", "topic_map", "rate", "queue_groups", "resend_doubtful", "dry_run", "tls", "credentials")
"""options that are not those of what is read and chosen"""


@dataclass(frozen=True)
class Credentials:
    """Access key and secret key; neither is ever shown."""

    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"


@dataclass(frozen=True)
class ReplaySettings:
    """Which messages are sent, where to, and how."""

    source: ExportSettings
    """what is read, and what of it is chosen"""
    to: str = ""
    journal: str = ""
    topic_map: tuple[tuple[str, str], ...] = ()
    rate: float | None = None
    """messages a second"""
    queue_groups: bool = False
    resend_doubtful: bool = False
    dry_run: bool = False
    tls: bool = False
    credentials: str = ""
    sql: str | None = None
    """the text of ``source.choice.selector``"""
    json: bool = False

    @property
    def bound(self) -> dict[str, Any]:
        """What a journal is bound to, but for the log: the choice and the target, as JSON has them."""
        source, choice = self.source, self.source.choice
        chosen = {
            "topics": choice.topics, "queue": choice.queue, "begin_offset": choice.begin_offset,
            "end_offset": choice.end_offset, "tags": choice.tags, "text": choice.text, "regex": choice.regex,
            "sql": self.sql, "unconsumed_by": choice.unconsumed_by,
            "keys": source.keys, "since": source.since, "until": source.until, "body_max": source.body_max,
            "delays": source.delays,
        }  # fmt: skip
        target = {"to": self.to, "topic_map": self.topic_map, "queue_groups": self.queue_groups}
        return {"choice": chosen, "target": target}

    def keys(self) -> Credentials:
        """Return access key and secret key: from the file, or else from the environment. Raises InputError."""
        found = {name: os.environ.get(name, "") for name in (ACCESS_KEY, SECRET_KEY)}
        if self.credentials:
            found = _of_file(self.credentials)
        if bool(found[ACCESS_KEY]) != bool(found[SECRET_KEY]):
            raise InputError("there is an access key without a secret key, or a secret key alone: give both")
        if not (found[ACCESS_KEY].isascii() and found[ACCESS_KEY].isprintable()):
            # It is sent in a header, which takes no other characters.
            place = f"--credentials {escape(self.credentials)}: accessKey" if self.credentials else ACCESS_KEY
            raise InputError(f"{place}: has a character that is no printable ASCII one: no access key has such")
        return Credentials(found[ACCESS_KEY], found[SECRET_KEY])


def _of_file(path: str) -> dict[str, str]:
    from rocketmq_reindex import files

    found = dict.fromkeys((ACCESS_KEY, SECRET_KEY), "")
    try:
        text = files.read_bytes(path, _CREDENTIALS_MAX).decode("utf-8", "replace")
    except (OSError, InputError) as error:
        wrong = reason(error).removeprefix(f"{escape(files.absolute(path))}: ")
        raise InputError(f"--credentials {escape(path)}: cannot be read ({wrong})") from None
    for line in text.splitlines():
        # As RocketMQ's YAML files have it, and as properties do.
        name, _, value = (part.strip(" \t\"'") for part in re.sub(r"\s*:\s+", "=", line.strip(), count=1).partition("="))
        if name in _IN_FILE:
            found[_IN_FILE[name]] = value
    if "" in found.values():
        raise InputError(f"--credentials {escape(path)}: has no accessKey=KEY and secretKey=KEY, each in a line of its own")
    return found


def replay_settings(given: Mapping[str, Any]) -> ReplaySettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    values = dict(given)
    own = {name: values.pop(name) for name in _OWN if name in values}

    def refuse(what: str) -> UsageError:
        return UsageError(f"rmq-reindex replay: {what}: see --help")

    pairs = [_pair(text, refuse) for text in own.pop("topic_map", ())]
    if len({old for old, _ in pairs}) < len(pairs):
        raise refuse("--topic-map names a topic twice")
    source = export_settings(values, "replay")
    settings = ReplaySettings(source, topic_map=tuple(sorted(pairs)), sql=values.get("sql"), json=source.json, **own)
    if not source.choice.taken_kinds <= meaning.OF_CLIENTS:
        raise refuse("a topic of the broker's own has no messages that can be sent")
    if settings.to:
        match = _ADDRESS.fullmatch(settings.to)
        if match is None or not 1 <= int(match[1]) < 1 << 16:
            raise refuse(f"--to {escape(settings.to)}: take HOST:PORT, as of a RocketMQ 5 proxy")
    if not settings.dry_run and not settings.to:
        raise refuse("name a proxy by --to, or give --dry-run")
    if not settings.dry_run and not settings.journal:
        raise refuse("name a file by --journal: with it a second run sends nothing twice")
    if settings.rate is not None and not 0 < settings.rate < layouts.INT32_MAX:
        raise refuse("--rate takes a number above 0")
    return settings


def _pair(text: str, refuse: Any) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise refuse(f"--topic-map {escape(text)}: take OLD=NEW")
    if not _TOPIC.fullmatch(new):
        raise refuse(f"--topic-map {escape(text)}: no topic has such a name: take up to 127 of A-Z a-z 0-9 % | _ -")
    return old, new


parse_replay: Final = options.reader("replay", replay_settings)
"""Return what the words behind ``replay`` ask for. Raises UsageError."""

# ----------------------------------------------------------------------------------------------------------------------- result

FAILURES_MAX: Final = 1000
"""messages that a run may fail to send: then it stops"""
_SHOWN: Final = 20


@dataclass(frozen=True)
class ReplayFailure:
    """A message that was not sent, or of which nobody knows whether it was.

    ``topic``, ``queue_id`` and ``queue_offset`` are its place in the store, None where an earlier run alone knows it;
    ``phy_offset`` is that in the log. ``message_id`` is the one that it has in the cluster, if it is there.
    """

    kind: Literal["refused", "doubtful"]
    phy_offset: int
    reason: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    message_id: str = ""

    @property
    def line(self) -> str:
        """What people read of it."""
        place = (
            "" if self.topic is None else f"{escape(self.topic, NAME_SHOWN)} queue {self.queue_id} offset {self.queue_offset}, "
        )
        new = f", as {escape(self.message_id)} if it was stored" if self.kind == "doubtful" else ""
        return f"{self.kind}: {place}offset {self.phy_offset} of the log: {self.reason}{new}"


@dataclass(repr=False)
class ReplayResult(WarnedResult):
    """What a replay sent, or with ``dry_run`` would send."""

    to: str = ""
    journal: str = ""
    messages: int = 0
    """messages that were chosen, as far as the log was read"""
    size: int = 0
    """bytes of their records in the log; of an export those of their bodies"""
    sent: int = 0
    """messages that this run sent, or with ``dry_run`` would send"""
    sent_before: int = 0
    """messages that an earlier run with this journal sent"""
    refused: int = 0
    doubtful: int = 0
    delayed: int = 0
    """of the sent ones those that the cluster delivers later"""
    topics: dict[str, int] = field(default_factory=dict)
    """sent messages by the topic they were sent to"""
    left_out: dict[str, int] = field(default_factory=dict)
    """records that are no messages of clients, and else as was asked for, by their kind"""
    failures: list[ReplayFailure] = field(default_factory=list)
    """what was refused, and what is doubtful"""
    damaged: int = 0
    """damaged stretches of the log: what was in them is not sent"""
    damaged_bytes: int = 0
    unsearched: int = 0
    """messages whose body does not unpack, so that nothing can be looked for in it: they are left out"""
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None

    def _facts(self) -> dict[str, str]:
        facts = {"messages": self.messages, "sent": self.sent, "refused": self.refused, "doubtful": self.doubtful}
        return {name: f"{count:,}" for name, count in facts.items()}

    def lines(self) -> list[str]:
        """Return what was done, for people."""
        what = f"{counted(self.sent, 'message')} to {counted(len(self.topics), 'topic')}"
        lines = [f"would send {what}"] if not self.to else [f"sent {what} of {escape(self.to)}"]
        lines += topic_lines(self.topics)
        lines += [f"{counted(self.delayed, 'message')} of them {'is' if self.delayed == 1 else 'are'} delivered later"] * (
            self.delayed > 0
        )
        lines += [f"sent before: {counted(self.sent_before, 'message')}"] * (self.sent_before > 0)
        lines += [failure.line for failure in self.failures[:_SHOWN]]
        lines += [f"and {len(self.failures) - _SHOWN:,} more: --json lists them"] if len(self.failures) > _SHOWN else []
        if self.left_out:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.left_out.items()))
            lines.append(f"left out, as no messages of clients, or delivered and sent as such: {kinds}")
        return lines
