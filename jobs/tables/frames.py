"""The rows of one run as DataFrames: what the driver knows, and what executors read from the manifest or the log."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.spark.engine import SparkEngine
from rocketmq_reindex.jobs.tables import rows
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.sql.commitlog import BLOCK_ROWS
from rocketmq_reindex.udfs.tables.files_table import STRETCH, ManifestFiles
from rocketmq_reindex.udfs.tables.messages import MessageRows
from rocketmq_reindex.udfs.tables.quarantine import read_first_bytes
from rocketmq_reindex.udfs.tables.schema import FILES, MESSAGES, QUARANTINE
from rocketmq_reindex.udfs.worker import setup as worker

_MESSAGE_BYTES: Final = 1 << 30
"""Bytes of the log whose messages one task reads, and so one file of ``messages`` holds"""


@dataclass(frozen=True)
class Built:
    """What a build was made from. The log was read up to the offset ``until``, as in the manifest."""

    scan: Scan
    accepted: list[RangeSummary]
    until: int


class Frames:
    """Makes the rows of a run from what ``summary`` holds at that moment. ``settings`` name the build."""

    def __init__(self, settings: BuildSettings, summary: Summary, engine: SparkEngine, log: Commitlog) -> None:
        self._settings, self._summary, self._engine, self._log = settings, summary, engine, log
        self._build = settings.build_id

    def of_run(self, summary: Summary, state: str, attempt: rows.Attempt, ended: datetime | None) -> DataFrame:
        """Return the row in ``builds``."""
        return self._of(rows.build_row(self._settings, summary, self._log, state, attempt, ended)).coalesce(1)

    def segments(self, built: Built) -> DataFrame:
        """Return the rows in ``segments``."""
        damage, summaries = self._summary.damage, built.scan.summaries.values()
        made = rows.segment_rows(self._build, self._log, summaries, built.accepted, built.until, damage)
        return self._of(made).coalesce(1)

    def files(self, manifest: str) -> DataFrame:
        """Return the rows in ``files``, which tasks read from the manifest at this path."""
        size = files.entry_of(manifest).size
        tasks = max(1, -(-size // STRETCH))
        return self._engine.over(ManifestFiles(manifest, size, tasks, self._build), tasks, FILES.ddl)

    def quarantine(self) -> DataFrame:
        """Return the rows in ``quarantine``, for which tasks read the first bytes of the damage."""
        places = self._of(rows.quarantine_rows(self._build, self._log, self._summary.damage))
        return places.mapInArrow(lambda batches: worker.run(read_first_bytes, batches), QUARANTINE.ddl)

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
    """Returns the range from its first record on, which the scan has found."""
    return dataclasses.replace(spec, low=summary.first, known=True)
