"""The rows of one run, made by the driver or read by executors, and how they are added to Delta tables only once."""

import dataclasses
import getpass
import json
import os
import random
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import finishing, options as building_options, scanning, summary as building_summary
from rocketmq_reindex.jobs.command.results import innermost
from rocketmq_reindex.jobs.command.tables_place import quoted
from rocketmq_reindex.jobs.spark.engine import SparkEngine
from rocketmq_reindex.jobs.tables.making import is_conflict, literal
from rocketmq_reindex.storage_format import digest, errors, showing
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.messages.log_rows import BLOCK_ROWS
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.table_rows import STRETCH, ManifestFiles, MessageRows, read_first_bytes
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, SEGMENTS

# ------------------------------------------------------------------------------------------------------------------------- rows
# Rows that the driver makes: one for the run, one for each segment, one for each damaged place.


def text(value: str) -> str:
    """Return a path or a message as a column can hold it: file names may be no text at all, and URIs may have secrets."""
    return showing.redacted(_legible(value))


def _legible(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a build: its number, its random word, when Spark was up."""

    number: int
    run: str
    started: datetime


def build_row(
    settings: building_options.BuildSettings,
    result: building_summary.BuildResult,
    log: Commitlog,
    state: str,
    attempt: Attempt,
    ended: datetime | None,
) -> pa.Table:
    """Return the row in ``builds``, with the figures that the result has now."""
    over = ended is not None
    row = {
        "build": settings.build_id,
        "attempt": attempt.number,
        "state": state,
        "exit": result.exit if over else None,
        "error": text(result.error) if over and result.error else None,
        "version": result.version,
        "startedAt": attempt.started,
        "endedAt": ended,
        "sessionSeconds": result.seconds["session"],
        "buildSeconds": result.seconds["build"] if over else None,
        "inputs": [text(root) for root in settings.roots],
        "out": text(files.absolute(settings.out)),
        "settings": json.dumps(settings.for_manifest()),
        "segments": len(log.segments),
        "bytes": result.bytes,
        "records": result.records,
        "units": result.units,
        "items": result.items,
        "queueFiles": result.files["consumequeue"],
        "indexFiles": result.files["index"],
        "damagedPlaces": len(result.damage),
        "decisions": result.decisions,
        "warnings": [text(warning) for warning in result.warnings],
        "store": text(settings.store_name or settings.store_folder or ",".join(settings.roots)),
        "host": socket.gethostname(),
        "user": _legible(_user()),
        "pid": os.getpid(),
        "updatedAt": ended or datetime.now(timezone.utc),
        "stage": None if over else "scan",
        "stageBytes": None if over else 0,
        "stageTotalBytes": None if over else log.size,
        "run": attempt.run,
        "digestKind": digest.KIND,
    }
    return pa.Table.from_pylist([row], schema=BUILDS.arrow)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container a user may have no name.
        return str(os.getuid())


def segment_rows(
    build: str, log: Commitlog, summaries: Iterable[RangeSummary], accepted: Iterable[RangeSummary], until: int,
    damage: Iterable[Mapping[str, Any]],
) -> pa.Table:  # fmt: skip
    """Return a row for each segment: the sums of its accepted ranges, and digests as in the manifest."""
    rows = []
    sums = {segment.start: _Sum() for segment in log.segments}
    starts = sorted(sums)
    position = 0
    for summary in sorted(accepted, key=lambda s: s.low):
        while position + 1 < len(starts) and starts[position + 1] <= summary.low:
            position += 1
        sums[starts[position]].add(summary)
    by_name: dict[str, list[int]] = {}
    for place in damage:
        by_name.setdefault(place["segment"], []).append(place["length"])
    for segment, entry in zip(log.segments, finishing.inputs(log, summaries, until), strict=True):
        total, lost = sums[segment.start], by_name.get(segment.name, [])
        chunks = entry["digests"]
        whole = None if None in chunks else digest.new_digest(bytes.fromhex(chunk) for chunk in chunks).digest().hex()
        rows.append(
            {
                "build": build,
                "segment": segment.name,
                "path": text(segment.path),
                "startOffset": segment.start,
                "size": segment.data_end - segment.start,
                "digest": whole,
                "chunkDigests": chunks,
                "records": total.records,
                "units": total.units,
                "items": total.items,
                "minStoreTimestamp": total.low,
                "maxStoreTimestamp": total.high,
                "damagedPlaces": len(lost),
                "damagedBytes": sum(lost),
            }
        )
    return pa.Table.from_pylist(rows, schema=SEGMENTS.arrow)


class _Sum:
    """Counts of one segment."""

    def __init__(self) -> None:
        self.records = self.units = self.items = 0
        self.low: int | None = None
        self.high: int | None = None

    def add(self, summary: RangeSummary) -> None:
        self.records += summary.records
        self.units += summary.units + summary.batch_units
        self.items += summary.items
        if summary.records:
            self.low = summary.time_min if self.low is None else min(self.low, summary.time_min)
            self.high = summary.time_max if self.high is None else max(self.high, summary.time_max)


def quarantine_rows(build: str, log: Commitlog, damage: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return a row for each damaged place. Its first bytes are read later, so ``path`` still has its secrets."""
    paths = {segment.name: _legible(segment.path) for segment in log.segments}
    rows = [
        {
            "build": build,
            "segment": place["segment"],
            "path": paths.get(place["segment"]),
            "offset": place["offset"],
            "length": place["length"],
            "reason": text(place["reason"]),
            "firstBytes": None,
        }
        for place in damage
    ]
    return pa.Table.from_pylist(rows, schema=QUARANTINE.arrow)


# ----------------------------------------------------------------------------------------------------------------------- frames
# The rows of one run as DataFrames: what the driver knows, and what executors read from the manifest or the log.

_MESSAGE_BYTES: Final = 1 << 30
"""Bytes of the log whose messages one task reads, and so one file of ``messages`` holds"""


@dataclass(frozen=True)
class Built:
    """What a build was made from. The log was read up to the offset ``until``, as in the manifest."""

    scan: scanning.Scan
    accepted: list[RangeSummary]
    until: int


class Frames:
    """Makes the rows of a run from what ``result`` holds at that moment. ``settings`` name the build."""

    def __init__(
        self,
        settings: building_options.BuildSettings,
        result: building_summary.BuildResult,
        engine: SparkEngine,
        log: Commitlog,
    ) -> None:
        self._settings, self._result, self._engine, self._log = settings, result, engine, log
        self._build = settings.build_id

    def of_run(self, result: building_summary.BuildResult, state: str, attempt: Attempt, ended: datetime | None) -> DataFrame:
        """Return the row in ``builds``."""
        return self._of(build_row(self._settings, result, self._log, state, attempt, ended)).coalesce(1)

    def segments(self, built: Built) -> DataFrame:
        """Return the rows in ``segments``."""
        damage, summaries = self._result.damage, built.scan.summaries.values()
        made = segment_rows(self._build, self._log, summaries, built.accepted, built.until, damage)
        return self._of(made).coalesce(1)

    def files(self, manifest: str) -> DataFrame:
        """Return the rows in ``files``, which tasks read from the manifest at this path."""
        size = files.entry_of(manifest).size
        tasks = max(1, -(-size // STRETCH))
        return self._engine.over(ManifestFiles(manifest, size, tasks, self._build), tasks, FILES.ddl)

    def quarantine(self) -> DataFrame:
        """Return the rows in ``quarantine``, for which tasks read the first bytes of the damage."""
        places = self._of(quarantine_rows(self._build, self._log, self._result.damage))
        return places.mapInArrow(lambda batches: handover.run(read_first_bytes, batches), QUARANTINE.ddl)

    def messages(self, built: Built) -> DataFrame:
        """Return the rows in ``messages``, which tasks read from the log."""
        specs = {spec.number: spec for of_segment in built.scan.ranges.values() for spec in of_segment}
        known = tuple(_known(specs[summary.number], summary) for summary in built.accepted if summary.records)
        size = sum(spec.high - spec.low for spec in known)
        tasks = max(1, min(len(known), max(self._engine.cores, -(-size // _MESSAGE_BYTES))))
        settings = dataclasses.replace(
            built.scan.task.settings, want_units=False, want_items=False, want_topics=False, want_messages=True,
            want_digests=False, window=0, block_rows=BLOCK_ROWS,
        )  # fmt: skip
        return self._engine.over(MessageRows(known, tasks, settings, self._build), tasks, MESSAGES.ddl)

    def _of(self, table: pa.Table) -> DataFrame:
        return self._engine.spark.createDataFrame(table)


def _known(spec: RangeSpec, summary: RangeSummary) -> RangeSpec:
    """Return the range from its first record on, which the scan has found."""
    return dataclasses.replace(spec, low=summary.first, known=True)


# ------------------------------------------------------------------------------------------------------------------------ delta
# Add rows to Delta tables, so that the same call twice adds nothing twice.
#
# Nothing of Delta's Python package is needed: SQL and DataFrames do, on any session that knows the format.

APPLICATION: Final = "rmq-reindex"
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""seconds at most, before it is tried again"""
_CUT: Final = re.compile(r"[\w.]+\.(ConnectionClosed|NoHttpResponse|NoSuchUpload|Socket|EOF)Exception\b|.*\bConnection reset\b")
"""What S3A does not try again: the reading of ranges whose answer breaks off (``S3AInputStream.readVectored``), and an upload
in parts that is whole, where the answer was lost and a server knows the upload no more."""
_SMALL_QUERIES: Final = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Java made and compiled for a query that runs once, over a handful of rows, is a fifth of the JVM's time with tables."""

Result = TypeVar("Result")


def small_queries(spark: SparkSession) -> dict[str, str]:
    """Return settings for many queries of few rows each, unless the session has others."""
    return {name: value for name, value in _SMALL_QUERIES.items() if spark.conf.get(name, None) is None}


def write(
    rows: DataFrame, path: str, build: str, run: str, step: int, *, replace: bool = False, pauses: Sequence[float] = PAUSES
) -> None:
    """Add the rows of one run of a build, or with ``replace`` replace all rows of that build.

    Delta keeps (application, version) of what was committed, so that the same ``step`` of the same run is passed over. It keeps
    them for ever, also when the rows are deleted: no other run may have the name ``run``, its rows would be passed over, too.
    """
    writer = rows.write.format("delta").option("txnAppId", f"{APPLICATION}/{run}").option("txnVersion", step)
    if replace:
        writer = writer.option("replaceWhere", f"build = {literal(build)}")
    again(lambda: writer.mode("overwrite" if replace else "append").save(path), pauses)


def again(call: Callable[[], Result], pauses: Sequence[float] = PAUSES) -> Result:
    """Return what a function returns. After an error that may pass it is called again, up to once for each of ``pauses``.

    That is a conflict, since Delta refuses one of two runs that commit to a table at the same time, and an answer of the store
    that broke off.
    """
    try:
        return call()
    except Exception as error:
        if not pauses or not (is_conflict(error) or _CUT.match(innermost(error))):
            raise
    time.sleep(random.uniform(0.5, 1) * pauses[0])
    return again(call, pauses[1:])


# ------------------------------------------------------------------------------------------------------------------------ claim
# Which run may write the rows of a build: of several with one ``--build-id``, the one that began last.
#
# Its random word is ``run`` in the build's row of ``builds``. A run that finds another word there publishes nothing.

_STARTED = 0


class Claim:
    """This run's claim to a build. ``shared``: the user gave the build's id, so another run may have it as well."""

    def __init__(self, spark: SparkSession, path: str, build: str, *, shared: bool) -> None:
        self._spark, self._path, self.build, self.shared = spark, path, build, shared
        self.attempt = Attempt(1, uuid.uuid4().hex, datetime.now(timezone.utc))
        self.kept = False
        """whether the row is that of a published attempt, which stays until this run publishes, too"""
        self.made = False
        """whether the row is there"""

    @property
    def application(self) -> str:
        """What Delta knows the commits of this run by."""
        return f"{self.build}/{self.attempt.run}"

    def make(self, start: Callable[[], DataFrame]) -> None:
        """Take the build over from whichever run had its id before. ``start`` makes the row ``started`` of this attempt."""
        again(lambda: self._make(start))
        self.made = True

    def _make(self, start: Callable[[], DataFrame]) -> None:
        # Once more after a conflict: the other run's row is there by then.
        row = self._row()
        if row is not None and row.run == self.attempt.run:
            return
        if row is not None:
            self.attempt = dataclasses.replace(self.attempt, number=int(row.attempt) + 1)
            self.kept = row.state == "published"
        if self.kept:
            word = literal(self.attempt.run)
            self._spark.sql(f"UPDATE {quoted(self._path)} SET run = {word} WHERE build = {literal(self.build)}").collect()
        else:
            write(start(), self._path, self.build, self.application, _STARTED, replace=self.shared, pauses=())

    def check(self) -> None:
        """Raise InputError when another run has taken the build over."""
        row = again(self._row)
        if row is not None and row.run != self.attempt.run:
            whose = f" ({showing.escape(row.host)}, process {row.pid})" if row.host and row.state == "started" else ""
            raise errors.InputError(
                f"--build-id {showing.escape(self.build)}: a later run{whose} has this id as well: give each run its own"
            )

    def update(self, stage: str, size: int, total: int) -> None:
        """Say in the row how far the run is. A row that is another run's by now, or over, stays as it is."""
        if self.kept:
            return
        now = datetime.now(timezone.utc).isoformat()
        self._spark.sql(
            f"UPDATE {quoted(self._path)} SET stage = {literal(stage)}, stageBytes = {size}, stageTotalBytes = {total}, "
            f"updatedAt = TIMESTAMP {literal(now)} "
            f"WHERE build = {literal(self.build)} AND run = {literal(self.attempt.run)} AND state = 'started'"
        ).collect()

    def _row(self) -> Row | None:
        """Return the row of the build's last attempt; None where no other run can have one."""
        if not self.shared:
            return None
        rows = self._spark.read.format("delta").load(self._path).where(f"build = {literal(self.build)}")
        attempts = rows.select("attempt", "state", "run", "host", "pid").collect()
        # Runs of older versions at the same time may have left two.
        return max(attempts, key=lambda row: int(row.attempt), default=None)
