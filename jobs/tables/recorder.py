"""``--tables``: the rows that a run writes to the Delta tables, from its start to its end.

The row in ``builds`` is written first and, with the outcome, last. Rows of other tables count once its state is ``published``.
A second run with the same ``--build-id`` (a scheduler's retry) replaces the rows of the first one.
"""

from __future__ import annotations

import copy
import dataclasses
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Final

from pyspark.sql import DataFrame

from rocketmq_reindex.jobs.building.recording import Unrecorded
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED
from rocketmq_reindex.jobs.command.failures import outcome as failure
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark.engine import SparkEngine
from rocketmq_reindex.jobs.spark.session import run_settings
from rocketmq_reindex.jobs.tables.delta import ensure, reason, small_queries, write
from rocketmq_reindex.jobs.tables.frames import Built, Frames
from rocketmq_reindex.jobs.tables.hadoop import hadoop_settings, hdfs_user
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, ReindexError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.tables.schema import BUILDS, FILES, MESSAGES, QUARANTINE, SEGMENTS, Table

_STARTED, _ENDED = 0, 1
_FEW_FILES: Final = 50_000
"""With more rows than this, compiled code saves more than it costs."""


class Recorder(Unrecorded):
    """Writes the rows of one run. A failure at its start is an InputError, at its end a warning."""

    has_rows = True

    def __init__(
        self, settings: BuildSettings, summary: Summary, reporter: Reporter, engine: SparkEngine, log: Commitlog
    ) -> None:
        self._spark, self._own = engine.spark, engine.own
        self.settings = settings if settings.build_id else dataclasses.replace(settings, build_id=uuid.uuid4().hex)
        self._summary, self._reporter = summary, reporter
        self._frames = Frames(self.settings, summary, engine, log)
        self._attempt, self._kept, self._looked = 1, False, not settings.build_id
        self._run = f"{self.settings.build_id}/{uuid.uuid4().hex}"
        self._started = _now()
        self._start_row: Future[None] = Future()
        self._built: Built | None = None
        """set by ``built_from``, before anything is published"""

    @property
    def _asked(self) -> list[Table]:
        return [BUILDS, SEGMENTS, FILES, QUARANTINE, *([MESSAGES] if self.settings.messages_table else [])]

    @contextmanager
    def recording(self, manifest: str, published: Callable[[], bool], complete: Callable[[], None]) -> Iterator[None]:
        self._open()
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="tables") as pool:
                # The build goes on to fill the summary, while the row of the start is written.
                self._start_row = pool.submit(self._write_start, copy.deepcopy(self._summary))
                yield
        except Exception as error:
            if not published():
                self._write_failure(error)
                raise
            # What went wrong after the rename takes nothing back.
            self.write_published(manifest, complete)
            raise
        self.write_published(manifest, complete)

    # -- the start ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the tables that are not there. Raises InputError."""
        with self._refused(), self._reaching(), self._stage(len(self._asked)) as done:
            self._check_user()
            self._each(self._asked, lambda table: ensure(self._spark, table, self._path(table)), done)

    def _write_start(self, summary: Summary) -> None:
        with self._refused(), self._reaching():
            self._look_back()
            if not self._kept:
                self._write(BUILDS, self._row("started", None, summary), _STARTED)
        self._reporter.line(f"tables: build {self.settings.build_id}, attempt {self._attempt}")

    def check(self) -> None:
        if self._start_row.done():
            self._start_row.result()

    def wait_started(self) -> None:
        with self._reporter.step("tables"):
            self._start_row.result()

    def _look_back(self) -> None:
        """Find out which attempt of its id this run is. Rows of a published attempt stay until this run publishes, too."""
        if self._looked:
            return
        before = self._spark.read.format("delta").load(self._path(BUILDS)).where(f"build = '{self.settings.build_id}'")
        for row in before.select("attempt", "state").collect():
            self._attempt = int(row.attempt) + 1
            self._kept = row.state == "published"
        self._looked = True

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except ReindexError:
            raise
        except Exception as error:
            where = escape(self.settings.tables)
            raise InputError(f"--tables {where}: {reason(error)}{UNPUBLISHED}") from error

    # -- the end ------------------------------------------------------------------------------------------------------

    def built_from(self, scan: Scan, accepted: list[RangeSummary], until: int) -> None:
        self._built = Built(scan, accepted, until)

    def write_published(self, manifest: str, complete: Callable[[], None]) -> None:
        """Write all rows of a build that has been published. What goes wrong is a warning: the build stays published."""
        written = False
        tables = [table for table in self._asked if table is not BUILDS]
        with (
            self._warned("the build is published, not all of its rows are in the tables"),
            self._reaching(),
            self._stage(len(tables) + 1) as done,
        ):
            self._each(tables, lambda table: self._write(table, self._rows(table, manifest), _ENDED), done)
            self._write(BUILDS, self._row("published", _now(), self._summary), _ENDED)
            written = True
        if written:
            complete()

    def _write_failure(self, error: Exception) -> None:
        """Write the row of a run that publishes nothing, and the damage it met, as far as can be."""
        outcome = dataclasses.replace(self._summary)
        outcome.exit, outcome.error = failure(error, None, PLACE, UNPUBLISHED)
        with self._warned("this run's rows are not all in the tables"), self._reaching(), self._stage(2):
            # The start may have failed to look. What an earlier run published must not be replaced.
            self._look_back()
            if self._kept:
                self._summary.warn(f"--tables: build {self.settings.build_id} was published before: this run is not recorded")
                return
            self._write(QUARANTINE, self._frames.quarantine(), _ENDED)
            state = "refused" if isinstance(error, RefusedError) else "failed"
            self._write(BUILDS, self._row(state, _now(), outcome), _ENDED)

    @contextmanager
    def _warned(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever Spark, Delta or a task raises
            self._summary.warnings.append(f"--tables {escape(self.settings.tables)}: {reason(error)}: {what}")

    # -- tables -------------------------------------------------------------------------------------------------------

    def _row(self, state: str, ended: datetime | None, summary: Summary) -> DataFrame:
        return self._frames.of_run(summary, state, self._attempt, self._started, ended)

    def _rows(self, table: Table, manifest: str) -> DataFrame:
        if table is FILES:
            return self._frames.files(manifest)
        if table is QUARANTINE:
            return self._frames.quarantine()
        assert self._built is not None
        return self._frames.messages(self._built) if table is MESSAGES else self._frames.segments(self._built)

    def _reaching(self) -> AbstractContextManager[None]:
        """Set what the session's Hadoop needs to reach the tables, and make small queries quick in a session of our own."""
        few = not self.settings.messages_table and sum(self._summary.files.values()) <= _FEW_FILES
        quick = small_queries(self._spark) if self._own and few else {}
        return run_settings(self._spark, hadoop_settings(self.settings.tables) | quick)

    def _check_user(self) -> None:
        """Raises InputError when Spark would write as another user than the URI names."""
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
        # The row of a run that ends replaces the one that it started with.
        again = self._attempt > 1 or (table is BUILDS and step == _ENDED)
        if table is QUARANTINE and not again and not self._summary.damage:
            return
        write(frame, self._path(table), self.settings.build_id, self._run, step, replace=again)

    @staticmethod
    def _each(tables: list[Table], call: Callable[[Table], None], done: Callable[[], None]) -> None:
        """Call a function for several tables side by side: a commit is mostly waiting. Raises what the first one raised."""
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


def _now() -> datetime:
    return datetime.now(timezone.utc)
