"""The options of ``rmq-reindex export``, which messages they choose, and what an export ends with."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.jobs.querying.question import place_out_of_range
from rocketmq_reindex.storage_format import layouts, topics as names
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.selector import Selector, SelectorError
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.udfs.exporting.choice import Choice
from rocketmq_reindex.udfs.times import show_time

# ---------------------------------------------------------------------------------------------------------------------- options

_ALL: Final = "all"
KINDS: Final = tuple(kind for kind in get_args(option.RecordKind) if kind != _ALL)
BODY_MOST: Final = 256 << 20
"""Bytes of an unpacked body: Arrow has offsets of 32 bits into the bodies of a batch."""
_STORE: Final = "store"
_FOLDERS: Final = ("parquet", "delta", "iceberg", _STORE)
"""formats whose export is a folder"""
_ENDINGS: Final = {
    ".csv": ("csv",), **dict.fromkeys((".jsonl", ".ndjson", ".json"), ("jsonl",)), ".parquet": ("parquet", "delta", "iceberg"),
}  # fmt: skip
"""the formats that a name with this ending may have: import, and other programs, go by it"""
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
"""endings by which a reader takes the lines of a file to be compressed"""


@dataclass(frozen=True)
class ExportSettings:
    """Which messages are exported, and where to. Times are milliseconds since 1970: from ``since`` on, before ``until``."""

    store: str = ""
    commitlogs: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    keys: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    to: str = ""
    consumer_offsets: tuple[str, ...] = ()
    """files of consumer offsets; without any those of the store"""
    format: str = option_table.default_of("format")
    count: bool = False
    body: str = option_table.default_of("body", "export")
    body_max: int = option_table.default_of("body_max")
    allow_empty: bool = False
    resumable: bool = False
    """whether a later run goes on where this one is stopped"""
    json: bool = False
    engine: str = ""
    """"spark" or "local"; "" is Spark where a session is given, and in spark-submit"""
    master: str = ""
    delays: tuple[int, ...] = ()
    """milliseconds of each delay level, from 1 on"""

    @property
    def is_folder(self) -> bool:
        """Whether what is written is a folder."""
        return self.format in _FOLDERS

    @property
    def is_store(self) -> bool:
        """Whether records go into a new store, as they are."""
        return self.format == _STORE and not self.count

    @property
    def reads_bodies(self) -> bool:
        """Whether bodies are read at all."""
        return self.choice.needs_body or self.writes_bodies

    @property
    def writes_bodies(self) -> bool:
        """Whether bodies are written, apart from whole records."""
        return self.body != "none" and not self.count and not self.is_store


def export_settings(given: Mapping[str, Any], command: str = "export") -> ExportSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError.

    Another ``command`` takes of them what is read and chosen.
    """
    values = dict(given)

    def refuse(what: str) -> UsageError:
        return UsageError(f"rmq-reindex {command}: {what}: see --help")

    def several(name: str) -> tuple[str, ...]:
        return tuple(values.pop(name, ()))

    topics, keys, tags, kinds = several("topics"), several("keys"), several("tags"), several("kinds")
    queue, begin, end = (values.pop(name, None) for name in ("queue", "begin_offset", "end_offset"))
    if (group := values.pop("dlq", None)) is not None:
        if not group:
            raise refuse("a group has at least one character")
        # A topic is a glob.
        topics = (*topics, glob.escape(f"{names.DEAD_LETTER_PREFIX}{group}"))
    if queue is not None and not topics:
        raise refuse("--queue needs --topic")
    if queue is None and (begin is not None or end is not None):
        raise refuse("--begin-offset and --end-offset need --queue")
    if wrong := place_out_of_range(queue=queue, begin_offset=begin, end_offset=end):
        raise refuse(wrong)
    if begin is not None and end is not None and begin >= end:
        raise refuse(f"--begin-offset {begin} is not below --end-offset {end}, so nothing can be found")
    if "" in (*topics, *keys, *tags, values.get("text"), values.get("regex")):
        raise refuse("a topic, a key, a tag and a text have at least one character")
    undecided, reader = values.pop("undecided", False), values.pop("unconsumed_by", None)
    if reader == "":
        raise refuse("a group has at least one character")
    offset_files = tuple(map(files.plain, several("consumer_offsets")))
    if offset_files and reader is None:
        raise refuse("--consumer-offsets goes with --unconsumed-by")
    if reader is not None and not offset_files and not values.get("store"):
        raise refuse("--unconsumed-by needs a STORE with config/, or --consumer-offsets")
    waiting = {meaning.HALF, meaning.SCHEDULED, meaning.TIMER}
    if (begin, end) != (None, None) and (undecided or not waiting.isdisjoint(KINDS if _ALL in kinds else kinds)):
        raise refuse("--begin-offset and --end-offset do not go with half messages, nor with kinds that wait in other queues")
    if undecided and (kinds or group or reader):
        raise refuse("--undecided takes half messages: neither --kind nor --dlq nor --unconsumed-by goes with it")
    choice = Choice(
        topics, KINDS if _ALL in kinds else kinds, queue, begin or 0, layouts.INT64_MAX if end is None else end, tags,
        values.pop("text", None), _regex(values.pop("regex", None)), _selector(values.pop("sql", None)),
        undecided, reader,
    )  # fmt: skip
    levels = option.parse_delay_levels(values.pop("delay_levels", option_table.default_of("delay_levels")))
    commitlogs = tuple(map(files.absolute, several("commitlogs")))
    settings = ExportSettings(
        commitlogs=commitlogs, choice=choice, keys=keys, consumer_offsets=offset_files, delays=levels, **values
    )
    if not settings.store and not commitlogs:
        raise refuse("name a STORE, or folders of segments by --commitlog")
    if settings.engine == "local" and settings.master:
        raise refuse("--master goes with --engine spark: the local engine takes all processors that it may")
    since, until = settings.since, settings.until
    if since is not None and until is not None and since >= until:
        raise refuse(f"--since {show_time(since)} is not before --until {show_time(until)}, so nothing can be found")
    if not 1 <= settings.body_max <= BODY_MOST:
        raise refuse(f"--body-max takes a number from 1 to {BODY_MOST}")
    if settings.is_store and not choice.taken_kinds <= meaning.OF_CLIENTS:
        known, others = listed(sorted(meaning.OF_CLIENTS)), listed(sorted(choice.taken_kinds - meaning.OF_CLIENTS))
        raise refuse(f"--format store takes messages of the kinds {known}, not {others}: a broker acts on these")
    if settings.is_store and settings.body == "none":
        raise refuse("--body none: a store has all bodies, as they are stored")
    if settings.resumable and (settings.count or settings.format == _STORE):
        raise refuse(f"--resumable does not go with {'--count' if settings.count else '--format store'}")
    if command == "export" and settings.count and settings.to:
        raise refuse(f"--to {escape(settings.to)}: nothing is written with --count: take one of them")
    if command == "export" and not settings.count and not settings.to:
        raise refuse("name a place for the export by --to, or give --count")
    ending = f".{settings.to.rpartition('.')[2].lower()}"
    if command == "export" and not settings.count and settings.format not in _ENDINGS.get(ending, (settings.format,)):
        meant = _ENDINGS[ending][0]
        raise refuse(
            f"--to {escape(settings.to)}: is a name for --format {meant}, not {settings.format}: give that one, or another name"
        )
    if command == "export" and not settings.count and not settings.is_folder and settings.to.lower().endswith(_COMPRESSED):
        raise refuse(f"--to {escape(settings.to)}: is a name for a compressed file, and none is written: give another name")
    return settings


def _selector(text: str | None) -> Selector | None:
    try:
        return None if text is None else Selector(text)
    except SelectorError as error:
        raise UsageError(f"--sql {escape(text or '')}: {escape(str(error))}") from None


def _regex(text: str | None) -> str | None:
    if text is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([b""]), text.encode())
        pc.match_substring_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        raise UsageError(f"--regex {escape(text)}: {escape(str(error))}") from None
    return text


parse_export: Final = options.reader("export", export_settings)
"""Return what the words behind ``export`` ask for. Raises UsageError."""

# ----------------------------------------------------------------------------------------------------------------------- result

_TOPICS_SHOWN: Final = 20
NAME_SHOWN: Final = 80
"""characters of a topic"""


def topic_lines(topics: Mapping[str, int]) -> list[str]:
    """Return a line for each of the topics with most messages, and one for all others."""
    by_count = sorted(topics.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"  {count:>12,}  {escape(topic, NAME_SHOWN)}" for topic, count in by_count[:_TOPICS_SHOWN]]
    return [*lines, f"  and {counted(len(by_count) - _TOPICS_SHOWN, 'topic')} more"] if len(by_count) > _TOPICS_SHOWN else lines


@dataclass(repr=False)
class ExportResult(WarnedResult):
    """What an export wrote, or with ``count`` would write."""

    to: str = ""
    format: str = ""
    messages: int = 0
    size: int = 0
    """bytes of their records in the log"""
    topics: dict[str, int] = field(default_factory=dict)
    """messages by topic"""
    left_out: dict[str, int] = field(default_factory=dict)
    """records that are of another kind, and else as was asked for, by their kind"""
    damaged: int = 0
    """damaged stretches of the log: what was in them is not exported"""
    damaged_bytes: int = 0
    unsearched: int = 0
    """messages whose body does not unpack, so that nothing can be looked for in it: they are left out"""
    files: int = 0
    bytes: int = 0
    """bytes of the files"""
    resumed: int = 0
    """segments that an earlier run had exported, which was stopped"""
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None

    def _facts(self) -> dict[str, str]:
        return {"messages": f"{self.messages:,}", "files": f"{self.files:,}", "warnings": str(len(self.warnings))}

    def lines(self) -> list[str]:
        """Return what was done, for people."""
        what = f"{counted(self.messages, 'message')} of {counted(len(self.topics), 'topic')}"
        if self.to:
            size = f"{counted(self.files, 'file')}, {counted(self.bytes, 'byte')}"
            lines = [f"exported {what} to {escape(self.to)}: {size}"]
        else:
            lines = [f"would export {what}: {counted(self.size, 'byte')} in the log"]
        lines += topic_lines(self.topics)
        if self.resumed:
            lines.append(f"resumed: {counted(self.resumed, 'segment')} had been exported before")
        if self.left_out:
            kinds = listed([f"{count:,} {kind}" for kind, count in sorted(self.left_out.items())])
            lines.append(f"left out: {kinds} (--kind takes them)")
        return lines
