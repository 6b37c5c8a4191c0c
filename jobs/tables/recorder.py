"""``--tables``: the rows that a run writes to the Delta tables, from its start over its stages to its end."""

import contextlib
import copy
import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from rocketmq_reindex.jobs.building import options as building_options, scanning, summary as building_summary
from rocketmq_reindex.jobs.building.run import Unrecorded
from rocketmq_reindex.jobs.command.results import PLACE, UNPUBLISHED, outcome as failure
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark.engine import SparkEngine
from rocketmq_reindex.jobs.spark.session import run_settings
from rocketmq_reindex.jobs.tables import making, rows
from rocketmq_reindex.jobs.watching.progress import Reporter, Shown, Stage
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, ReindexError
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, SEGMENTS, Table

# --------------------------------------------------------------------------------------------------------------------- progress
# Keep the row of a run that goes on up to date: which stage it is in, and how far.

INTERVAL = 60.0
"""seconds between two updates at least"""
SHARE: Final = 1 / 30
"""of the time since the start, between two updates at least: so a day has some 150, since each is a version of the table"""
POOL: Final = "rmq-reindex-tables"
"""A pool of Spark's fair scheduler: a job of one small task in it does not wait behind a scan of thousands."""
_PATIENCE: Final = 10.0
"""seconds that the end of a run waits for an update under way"""


class Progress(Shown):
    """Calls ``update`` with stage, bytes done and bytes in all, seldom, from a thread of its own.

    An update that fails is left out: the next one, or the end of the run, says more.
    """

    def __init__(self, spark: SparkSession, reporter: Reporter, update: Callable[[str, int, int], None]) -> None:
        self._spark, self._reporter, self._update = spark, reporter, update
        self._stage: Stage | None = None
        self._size = 0
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the stages of the reporter. Afterwards no update comes any more."""
        shown, thread = self._reporter.shown, threading.Thread(target=self._run, name="tables-progress", daemon=True)
        self._reporter.shown = [*shown, self]
        thread.start()
        try:
            yield
        finally:
            self._reporter.shown = shown
            self._over.set()
            # Where Spark's scheduler is no fair one, an update waits behind a scan that may have been interrupted.
            thread.join(_PATIENCE)

    def stage_started(self, stage: Stage) -> None:
        self._stage, self._size = stage, 0

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        _ = stage, things
        self._size = size

    def _run(self) -> None:
        into_pool(self._spark)
        begin = self._reporter.elapsed()
        while not self._over.wait(pause(self._reporter.elapsed() - begin)):
            if (stage := self._stage) is not None:
                with contextlib.suppress(Exception):
                    self._update(stage.name, self._size, stage.total_bytes)


def pause(seconds: float) -> float:
    """Return the seconds until the next update of a run that is as old as that."""
    return max(INTERVAL, seconds * SHARE)


def into_pool(spark: SparkSession) -> None:
    """Run what this thread asks of Spark in a pool of its own, where the scheduler is a fair one."""
    # A session of Spark Connect has no SparkContext.
    with contextlib.suppress(Exception):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)


# --------------------------------------------------------------------------------------------------------------------- recorder
# The row in ``builds`` is written before the log is read and, with the outcome, last. Rows of other tables count once its state
# is ``published``. A second run with the same ``--build-id`` (a scheduler's retry) replaces the rows of the first one.

_ENDED: Final = 1
"""what Delta knows the commits at a run's end by, after its first one"""
_NO_COUNTS: Final = {"spark.databricks.delta.numRecordsValidation.enabled": "false"}
"""Delta warns on stderr, at each update, that it cannot compare numbers of rows."""
_FEW_FILES: Final = 50_000
"""With more rows than this, compiled code saves more than it costs."""


class Recorder(Unrecorded):
    """Writes the rows of one run. A failure at its start is an InputError, at its end a warning."""

    has_rows = True

    def __init__(
        self,
        settings: building_options.BuildSettings,
        result: building_summary.BuildResult,
        reporter: Reporter,
        engine: SparkEngine,
        log: Commitlog,
    ) -> None:
        self._spark, self._own = engine.spark, engine.own
        self.settings = settings if settings.build_id else dataclasses.replace(settings, build_id=uuid.uuid4().hex)
        self._result, self._reporter = result, reporter
        self._frames = rows.Frames(self.settings, result, engine, log)
        self._claim = rows.Claim(self._spark, self._path(BUILDS), self.settings.build_id, shared=bool(settings.build_id))
        self._alone = threading.Lock()
        self._built: rows.Built | None = None
        """set by ``built_from``, before anything is published"""

    @property
    def _asked(self) -> list[Table]:
        return [BUILDS, SEGMENTS, FILES, QUARANTINE, *([MESSAGES] if self.settings.messages_table else [])]

    @contextmanager
    def recording(self, manifest: str, published: Callable[[], bool], complete: Callable[[], None]) -> Iterator[None]:
        try:
            self._start()
            with Progress(self._spark, self._reporter, self._update).watching():
                yield
        except Exception as error:
            if not published():
                if self._claim.made:
                    self._write_failure(error)
                raise
            # What went wrong after the rename takes nothing back.
            self.write_published(manifest, complete)
            raise
        self.write_published(manifest, complete)

    # -- the start ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Make the tables that are not there, and the row ``started``: before the log is read. Raises InputError.

        Beside the scan a commit would wait for it: Spark runs the tasks of one job before those of the next.
        """
        with self._refused(), self._reaching(), self._stage(len(self._asked)) as done:
            self._check_user()
            self._each(self._asked, self._open, done)
        attempt = self._claim.attempt.number
        self._reporter.line(f"tables: build {self.settings.build_id}, attempt {attempt}")

    def _open(self, table: Table) -> None:
        making.ensure(self._spark, table, self._path(table))
        if table is BUILDS:
            result = copy.deepcopy(self._result)
            self._claim.make(lambda: self._row("started", None, result))

    def _update(self, stage: str, size: int, total: int) -> None:
        with self._reaching(quick=False):
            self._claim.update(stage, size, total)

    def check(self) -> None:
        with self._refused(), self._reaching(), self._reporter.step("tables"):
            self._claim.check()

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except ReindexError as error:
            raise InputError(f"{error}{UNPUBLISHED}") from error
        except Exception as error:
            place = escape(self.settings.tables)
            raise InputError(f"--tables {place}: {making.reason(error)}{UNPUBLISHED}") from error

    # -- the end ------------------------------------------------------------------------------------------------------

    def built_from(self, scan: scanning.Scan, accepted: list[RangeSummary], until: int) -> None:
        self._built = rows.Built(scan, accepted, until)

    def write_published(self, manifest: str, complete: Callable[[], None]) -> None:
        """Write all rows of a build that has been published. What goes wrong is a warning: the build stays published."""
        written = False
        tables = [table for table in self._asked if table is not BUILDS]
        with (
            self._warned("the build is published, not all of its rows are in the tables"),
            self._reaching(),
            self._stage(len(tables) + 1) as done,
        ):
            # Before, since the rows of a later run would be replaced; and after, since writing takes a while.
            self._claim.check()
            self._each(tables, lambda table: self._write(table, self._rows(table, manifest)), done)
            self._claim.check()
            self._write(BUILDS, self._row("published", _now(), self._result))
            written = True
        if written:
            complete()

    def _write_failure(self, error: Exception) -> None:
        """Write the row of a run that publishes nothing, and the damage it met, as far as can be."""
        outcome = dataclasses.replace(self._result)
        outcome.exit, outcome.error = failure(error, None, PLACE, UNPUBLISHED)
        with self._warned("this run's rows are not all in the tables"), self._reaching(), self._stage(2):
            if self._claim.kept:
                self._result.warn(f"--tables: build {self.settings.build_id} was published before: this run is not recorded")
                return
            self._claim.check()
            self._write(QUARANTINE, self._frames.quarantine())
            state = "refused" if isinstance(error, RefusedError) else "failed"
            self._write(BUILDS, self._row(state, _now(), outcome))

    @contextmanager
    def _warned(self, outcome: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever Spark, Delta or a task raises
            self._result.warnings.append(f"--tables {escape(self.settings.tables)}: {making.reason(error)}: {outcome}")

    # -- tables -------------------------------------------------------------------------------------------------------

    def _row(self, state: str, ended: datetime | None, result: building_summary.BuildResult) -> DataFrame:
        return self._frames.of_run(result, state, self._claim.attempt, ended)

    def _rows(self, table: Table, manifest: str) -> DataFrame:
        if table is FILES:
            return self._frames.files(manifest)
        if table is QUARANTINE:
            return self._frames.quarantine()
        assert self._built is not None
        return self._frames.messages(self._built) if table is MESSAGES else self._frames.segments(self._built)

    @contextmanager
    def _reaching(self, *, quick: bool = True) -> Iterator[None]:
        """Set what the session's Hadoop needs to reach the tables, and make small queries quick in a session of our own.

        One thread at a time: each puts back the settings that it found.
        """
        few = not self.settings.messages_table and sum(self._result.files.values()) <= _FEW_FILES
        own_settings = dict(_NO_COUNTS) if self._own else {}
        if self._own and few and quick:
            own_settings |= rows.small_queries(self._spark)
        with self._alone, run_settings(self._spark, making.hadoop_settings(self.settings.tables) | own_settings):
            yield

    def _check_user(self) -> None:
        """Raise InputError when Spark would write as another user than the URI names."""
        user = making.hdfs_user(self.settings.tables)
        if not user:
            return
        (row,) = self._spark.sql("SELECT current_user()").collect()
        if row[0] != user:
            raise InputError(
                f"--tables {escape(self.settings.tables)}: this Spark session is {escape(row[0])} in an HDFS: "
                f"start it with HADOOP_USER_NAME={escape(user)}, or name no user"
            )

    def _path(self, table: Table) -> str:
        return table_path(self.settings.tables, table.name)

    def _write(self, table: Table, frame: DataFrame) -> None:
        """Write rows at the end of the run."""
        if table is QUARANTINE and self._claim.attempt.number == 1 and not self._result.damage:
            return
        # A run with the same id may have left rows, or be about to. And the row in builds is there since the start.
        replace = self._claim.shared or table is BUILDS
        rows.write(frame, self._path(table), self.settings.build_id, self._claim.application, _ENDED, replace=replace)

    @staticmethod
    def _each(tables: list[Table], call: Callable[[Table], None], done: Callable[[], None]) -> None:
        """Call a function for several tables side by side: a commit is mostly waiting. Raises what the first one raised."""
        with ThreadPoolExecutor(len(tables), thread_name_prefix="tables") as pool:
            for future in [pool.submit(call, table) for table in tables]:
                future.result()
                done()

    @contextmanager
    def _stage(self, total: int) -> Iterator[Callable[[], None]]:
        count = [0]

        def done() -> None:
            count[0] += 1

        with self._reporter.stage("tables", "tables", total, 0, lambda: (count[0], count[0] / total)):
            yield done


def _now() -> datetime:
    return datetime.now(timezone.utc)
