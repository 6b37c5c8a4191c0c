"""``--tables``: what a run leaves in the Delta tables, from its start to its end.

The row in ``builds`` is written first and, with the outcome, last: rows of the other tables count once it says ``published``.
A second run with the same ``--build-id`` (a scheduler's retry) puts its rows in the place of the first one's.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs import tables_rows as rows
from jobs.engine import SparkEngine
from jobs.failures import PLACE, UNPUBLISHED
from jobs.failures import outcome as failure
from jobs.progress import Reporter
from jobs.scanning import Scan
from jobs.session import run_settings
from jobs.settings import BuildSettings
from jobs.summary import Summary
from jobs.tables_delta import ensure, reason, write
from jobs.tables_hadoop import hadoop_settings, hdfs_user
from jobs.tables_place import table_path
from storage_format.errors import InputError, RefusedError, ReindexError
from storage_format.names import escape
from storage_format.range_summary import RangeSpec, RangeSummary
from udfs import files, worker
from udfs.segments import Commitlog
from udfs.source_commitlog import BLOCK_ROWS
from udfs.table_files import STRETCH, ManifestFiles
from udfs.table_messages import MessageRows
from udfs.table_quarantine import read_first_bytes
from udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, SEGMENTS, Table

_STARTED, _ENDED = 0, 1
_MESSAGE_BYTES: Final = 1 << 30
"""Bytes of the log whose messages one task reads, and so one file of ``messages`` holds"""


@dataclass(frozen=True)
class Built:
    """What a build was made from: ``until`` as for the manifest."""

    scan: Scan
    accepted: list[RangeSummary]
    until: int


class Recorder:
    """Writes the rows of one run. ``began`` raises InputError; at the end what cannot be written is a warning."""

    def __init__(
        self, settings: BuildSettings, summary: Summary, reporter: Reporter, engine: SparkEngine, log: Commitlog
    ) -> None:
        self._engine, self._spark = engine, engine.spark
        self._given = bool(settings.build_id)
        self.settings = settings if self._given else dataclasses.replace(settings, build_id=uuid.uuid4().hex)
        self._summary, self._reporter, self._log = summary, reporter, log
        self._attempt, self._kept = 1, False
        self._run = f"{self.settings.build_id}/{uuid.uuid4().hex}"
        self._started = _now()
        self.built: Built | None = None
        """set by ``saw``, before anything is published"""
        self.complete = False
        """whether all rows of a published build were written"""

    @property
    def _asked(self) -> list[Table]:
        return [BUILDS, SEGMENTS, FILES, QUARANTINE, *([MESSAGES] if self.settings.messages_table else [])]

    # -- the start ----------------------------------------------------------------------------------------------------

    def began(self) -> None:
        """Make the tables, and the row of a run that has started. Raises InputError: then nothing may be published."""
        where = escape(self.settings.tables)
        try:
            with self._reaching(), self._stage(len(self._asked)) as done:
                self._check_user()
                self._each(self._asked, lambda table: ensure(self._spark, table, self._path(table)), done)
                if self._given:
                    self._look_back()
                if not self._kept:
                    self._write(BUILDS, self._row("started", None), _STARTED)
        except ReindexError:
            raise
        except Exception as error:
            raise InputError(f"--tables {where}: {reason(error)}: nothing was published") from error
        self._reporter.line(f"tables: build {self.settings.build_id}, attempt {self._attempt}")

    def _look_back(self) -> None:
        """Which attempt of its id this run is; what was published stays until this run publishes, too."""
        before = self._spark.read.format("delta").load(self._path(BUILDS)).where(f"build = '{self.settings.build_id}'")
        for row in before.select("attempt", "state").collect():
            self._attempt = int(row.attempt) + 1
            self._kept = row.state == "published"

    # -- the end ------------------------------------------------------------------------------------------------------

    def saw(self, scan: Scan, accepted: list[RangeSummary], until: int) -> None:
        """What the build is made from."""
        self.built = Built(scan, accepted, until)

    def published(self, manifest: str) -> None:
        """All rows of a build that has been published. What goes wrong is a warning: the build stays published."""
        tables = [table for table in self._asked if table is not BUILDS]
        with (
            self._warned("the build is published, not all of its rows are in the tables"),
            self._reaching(),
            self._stage(len(tables) + 1) as done,
        ):
            self._each(tables, lambda table: self._write(table, self._rows(table, manifest), _ENDED), done)
            self._write(BUILDS, self._row("published", _now()), _ENDED)
            self.complete = True

    def failed(self, error: Exception) -> None:
        """The row of a run that publishes nothing, and the damage it met, as far as can be."""
        if self._kept:
            self._summary.warnings.append(
                f"--tables: build {self.settings.build_id} was published before: this run is not recorded"
            )
            return
        outcome = dataclasses.replace(self._summary)
        outcome.exit, outcome.error = failure(error, None, PLACE, UNPUBLISHED)
        with self._warned("this run's rows are not all in the tables"), self._reaching(), self._stage(2):
            self._write(QUARANTINE, self._quarantine(), _ENDED)
            state = "refused" if isinstance(error, RefusedError) else "failed"
            self._write(BUILDS, self._row(state, _now(), outcome), _ENDED)

    @contextmanager
    def _warned(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever Spark, Delta or a task raises
            self._summary.warnings.append(f"--tables {escape(self.settings.tables)}: {reason(error)}: {what}")

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _row(self, state: str, ended: datetime | None, summary: Summary | None = None) -> DataFrame:
        made = rows.build_row(
            self.settings, summary or self._summary, self._log, state, self._attempt, self._started, ended
        )  # fmt: skip
        return self._frame(made).coalesce(1)

    def _rows(self, table: Table, manifest: str) -> DataFrame:
        if table is FILES:
            return self._files(manifest)
        if table is QUARANTINE:
            return self._quarantine()
        assert self.built is not None
        built = self.built
        if table is MESSAGES:
            return self._messages(built)
        made = rows.segment_rows(
            self.settings.build_id, self._log, built.scan.summaries.values(), built.accepted, built.until, self._summary.damage
        )
        return self._frame(made).coalesce(1)

    def _files(self, manifest: str) -> DataFrame:
        size = files.look(manifest).size
        tasks = max(1, -(-size // STRETCH))
        return self._engine.over(ManifestFiles(manifest, size, tasks, self.settings.build_id), tasks, FILES.ddl)

    def _quarantine(self) -> DataFrame:
        places = self._frame(rows.quarantine_rows(self.settings.build_id, self._log, self._summary.damage))
        return places.mapInArrow(lambda batches: worker.run(read_first_bytes, batches), QUARANTINE.ddl)

    def _messages(self, built: Built) -> DataFrame:
        specs = {spec.number: spec for of_segment in built.scan.ranges.values() for spec in of_segment}
        known = tuple(_known(specs[summary.number], summary) for summary in built.accepted if summary.records)
        size = sum(spec.high - spec.low for spec in known)
        tasks = max(1, min(len(known), max(self._engine.cores, -(-size // _MESSAGE_BYTES))))
        settings = dataclasses.replace(
            built.scan.task.settings, want_units=False, want_items=False, want_topics=False, want_messages=True,
            want_digests=False, window=0, block_rows=BLOCK_ROWS,
        )  # fmt: skip
        return self._engine.over(MessageRows(known, tasks, settings, self.settings.build_id), tasks, MESSAGES.ddl)

    def _frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    # -- tables -------------------------------------------------------------------------------------------------------

    def _reaching(self) -> AbstractContextManager[None]:
        """The session's Hadoop finds the tables' place meanwhile."""
        return run_settings(self._spark, hadoop_settings(self.settings.tables))

    def _check_user(self) -> None:
        """Raises InputError when Spark would write as somebody else than the URI says."""
        user = hdfs_user(self.settings.tables)
        if not user:
            return
        (found,) = self._spark.sql("SELECT current_user()").collect()
        if found[0] != user:
            raise InputError(
                f"--tables {escape(self.settings.tables)}: this Spark session is {escape(found[0])} in an HDFS: "
                f"start it with HADOOP_USER_NAME={escape(user)}, or name no user"
            )

    def _path(self, table: Table) -> str:
        return table_path(self.settings.tables, table.name)

    def _write(self, table: Table, frame: DataFrame, step: int) -> None:
        # The row of a run that ends takes the place of the one it began with.
        again = self._attempt > 1 or (table is BUILDS and step == _ENDED)
        if table is QUARANTINE and not again and not self._summary.damage:
            return
        write(frame, self._path(table), self.settings.build_id, self._run, step, replace=again)

    @staticmethod
    def _each(tables: list[Table], call: Callable[[Table], None], done: Callable[[], None]) -> None:
        """The same for several tables, side by side: a commit is mostly waiting. Raises what the first one raised."""
        with ThreadPoolExecutor(len(tables), thread_name_prefix="tables") as pool:
            for one in [pool.submit(call, table) for table in tables]:
                one.result()
                done()

    @contextmanager
    def _stage(self, total: int) -> Iterator[Callable[[], None]]:
        count = [0]

        def done() -> None:
            count[0] += 1

        with self._reporter.stage("tables", "tables", total, 0, lambda: (count[0], 0)):
            yield done


def _known(spec: RangeSpec, summary: RangeSummary) -> RangeSpec:
    """The range from its first record on, which the scan has found."""
    return dataclasses.replace(spec, low=summary.first, known=True)


def _now() -> datetime:
    return datetime.now(timezone.utc)
