"""``rmq-reindex import``: its options, one run, and what it ends with."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.results import WarnedResult
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener, UsageError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.showing import counted, escape

# ---------------------------------------------------------------------------------------------------------------------- options


@dataclass(frozen=True)
class ImportSettings:
    """Which rows become a store, and where. Sizes are in bytes."""

    source: str
    to: str
    segment_size: int = option_table.default_of("segment_size", "import")
    broker_version: str = option_table.default_of("broker_version")
    allow_empty: bool = False
    json: bool = False


def import_settings(given: Mapping[str, Any]) -> ImportSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    settings = ImportSettings(**given)
    if not settings.source:
        raise UsageError("rmq-reindex import: name a SOURCE: see --help")
    if not r.RECORD_MIN + r.FILLER_MIN <= settings.segment_size <= layouts.INT32_MAX:
        raise UsageError(f"rmq-reindex import: --segment-size {settings.segment_size}: take a number of bytes up to 2 GiB")
    return settings


parse_import: Final = options.reader("import", import_settings)
"""Return what the words behind ``import`` ask for. Raises UsageError."""

# ----------------------------------------------------------------------------------------------------------------------- result


@dataclass(repr=False)
class ImportResult(WarnedResult):
    """What an import wrote."""

    to: str = ""
    messages: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    """messages by topic"""
    segments: int = 0
    segment_size: int = 0
    """bytes of each segment: a broker starts on them with this ``mappedFileSizeCommitLog`` alone"""
    bytes: int = 0
    """bytes of the records in the log"""
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None

    def _facts(self) -> dict[str, str]:
        return {"messages": f"{self.messages:,}", "topics": f"{len(self.topics):,}", "warnings": str(len(self.warnings))}

    def lines(self) -> list[str]:
        """Return what was done, for people."""
        what = f"{counted(self.messages, 'message')} of {counted(len(self.topics), 'topic')}"
        where = f"{counted(self.segments, 'segment')}, {counted(self.bytes, 'byte')} of records"
        start = "next     start a broker whose storePathRootDir this is"
        if self.segment_size != option_table.default_of("segment_size", "import"):
            start += f", with mappedFileSizeCommitLog={self.segment_size}"
        return [f"imported {what} into {escape(self.to)}: {where}", start]


# -------------------------------------------------------------------------------------------------------------------------- run


def run(settings: ImportSettings, result: ImportResult, progress: ProgressListener) -> list[str]:
    """Import. Return what was done, as lines for people. Raises InputError and OSError; nothing is written then."""
    # Bodies are searched for nothing here, but Arrow and the loops of records take a while to import.
    from rocketmq_reindex.jobs.building.options import BuildSettings
    from rocketmq_reindex.jobs.exporting import new_store
    from rocketmq_reindex.jobs.importing import records, sources
    from rocketmq_reindex.jobs.publishing import output
    from rocketmq_reindex.udfs.messages.batches import counts_in

    to = settings.to
    if files.no_rename(to):
        raise InputError(f"--to {escape(to)}: names cannot be changed there: name a place on a disk")
    source = sources.open_source(settings.source)
    target = output.check_places([settings.source], to, None)
    topics, maker, at = Counter[str](), records.RecordMaker(), 0
    with output.locked(target), output.staging(target, overwrite=False) as staging:
        like = BuildSettings("", target, broker_version=settings.broker_version)
        sink = new_store.StoreSink(staging.tree, settings.segment_size, like)
        progress.begin("import", source.size)
        scratch = files.join(staging.temporary, "rows")
        os.mkdir(scratch)
        try:
            for rows in source.read(scratch):
                made = maker(rows)
                sink.add(made)
                topics.update(counts_in(made.rows.column("topic")))
                result.bytes += len(made.records.data)
                progress.moved(max(0, rows.position - at))
                at = max(at, rows.position)
            result.warnings += sink.finish()
        except BaseException:
            sink.abandon()
            raise
        progress.end()
        result.messages, result.topics = sum(topics.values()), dict(sorted(topics.items()))
        if not result.messages and not settings.allow_empty:
            raise InputError(f"{escape(settings.source)}: has no row: nothing is written without --allow-empty")
        if maker.without_unit:
            result.warnings.append(
                f"{counted(maker.without_unit, 'message')}: no consumer gets them: half messages, or rolled back, by sysFlag"
            )
        result.warnings += new_store.derive(staging, sink.like, progress, topics)
        result.segment_size = settings.segment_size
        result.segments = len(os.listdir(files.join(staging.tree, layouts.COMMITLOG)))
        output.publish(staging, target, overwrite=False)
    output.settle(target)
    result.to = to
    return result.lines()
