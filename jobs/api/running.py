"""One run of build, verify or fetch, as the command line and the Python API share it: what fails becomes an outcome."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED, Interrupts, outcome
from rocketmq_reindex.jobs.fetching.run import Fetch, FetchSummary
from rocketmq_reindex.jobs.incremental.early import needs_spark
from rocketmq_reindex.jobs.publishing.whole_file import write_whole
from rocketmq_reindex.jobs.tables.hadoop import hdfs_user
from rocketmq_reindex.jobs.verifying.summary import VerifySummary
from rocketmq_reindex.jobs.watch import Watch
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.storage_format.names import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.settings import BuildSettings
    from rocketmq_reindex.jobs.fetching.options import FetchSettings
    from rocketmq_reindex.jobs.run import Build
    from rocketmq_reindex.jobs.verifying.settings import VerifySettings

S = TypeVar("S")


class Ended(NamedTuple, Generic[S]):
    """A run that has ended. ``summary.error`` is None where it did what it was asked to.

    ``error`` is what was raised, ``lines`` are what a person reads at the end.
    """

    summary: S
    error: BaseException | None
    lines: list[str]


def run_build(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[Summary]:
    """Build. ``settings_of`` may raise UsageError. ``spark``: the session to work in, instead of one that is looked for."""
    summary, lines = Summary(), list[str]()
    job: Build | None = None
    raised: BaseException | None = None
    try:
        settings = settings_of()
        with interrupts:
            watch.start(settings, (*settings.inputs, settings.out))
            # What is refused without a look into the log is refused before a JVM is started.
            inputs = look_at(settings)
            from rocketmq_reindex.jobs.spark.kernels import NOTE, kept
            from rocketmq_reindex.jobs.spark.session import starting

            delta, user = bool(settings.tables), hdfs_user(settings.tables)
            start = spark is None and needs_spark(settings, inputs)
            with kept() as compiled_once, starting(settings.master, delta, user) if start else contextlib.nullcontext():
                # numba alone takes a second, and the session starts meanwhile.
                from rocketmq_reindex.jobs.run import Build
                from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
                from rocketmq_reindex.jobs.spark.engine import SparkEngines

                with daemon_ahead(), watch.reporter() as reporter:
                    engines = SparkEngines(settings.master, delta=delta, hadoop_user=user, spark=spark)
                    job = Build(settings, reporter, engines)
                    job.summary.started = summary.started
                    summary = job.summary
                    job.run(inputs)
                    if compiled_once and not settings.dry_run:
                        # This is no part of the result, so it is not in the manifest.
                        summary.warn(NOTE)
        watch.stop_clock(summary)
        lines += [] if settings.dry_run else [summary.to_text()]
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.stop_clock(summary)
        raised = error
        summary.exit, summary.error = outcome(error, interrupts, PLACE, UNPUBLISHED)
    with interrupts.ignored():
        published = job is not None and job.published
        if published and summary.error:
            # What went wrong after the rename takes nothing back.
            summary.warnings.append(f"published all the same: {summary.error.removesuffix(UNPUBLISHED)}")
            summary.exit, summary.error = 3 if summary.lost else 0, None
        watch.end(summary, lines=True, published=published)
    return Ended(summary, raised, [*job.plan, *lines] if job else lines)


def run_verify(
    settings_of: Callable[[], VerifySettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[VerifySummary]:
    """Verify. ``settings_of`` may raise UsageError and InputError. ``spark`` as for ``run_build``."""
    summary, lines = VerifySummary(), list[str]()
    raised: BaseException | None = None
    try:
        settings = settings_of()
        with interrupts:
            watch.start(settings, settings.stores)
            # A wrong path is refused before a JVM is started.
            logs = settings.logs()
            from rocketmq_reindex.jobs.spark.kernels import NOTE, kept
            from rocketmq_reindex.jobs.spark.session import starting

            with kept() as compiled_once, starting(settings.master) if spark is None else contextlib.nullcontext():
                from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
                from rocketmq_reindex.jobs.spark.engine import SparkEngines
                from rocketmq_reindex.jobs.verifying.against import Against
                from rocketmq_reindex.jobs.verifying.run import Verify

                with daemon_ahead(), watch.reporter() as reporter:
                    engines = SparkEngines(settings.master, spark=spark)
                    job = Against(settings, reporter, engines) if settings.against else Verify(settings, reporter, engines)
                    job.summary.started = summary.started
                    summary = job.summary
                    job.run(logs)
                    if compiled_once:
                        summary.warn(NOTE)
                watch.stop_clock(summary)
                if settings.report:
                    write_whole(settings.report, summary.to_json() + "\n")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.stop_clock(summary)
        raised = error
        summary.exit, summary.error = outcome(error, interrupts, "input")
    watch.end(summary)
    if not summary.error:
        lines.append(summary.to_text())
    return Ended(summary, raised, lines)


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchSummary]:
    """Fetch. ``settings_of`` may raise UsageError."""
    summary, lines = FetchSummary(), list[str]()
    raised: BaseException | None = None
    began = time.monotonic()
    try:
        settings = settings_of()
        with interrupts:
            lines = Fetch(settings, summary).run()
    except ReindexError as error:
        raised, summary.exit, summary.error = error, error.exit_status, str(error)
    except KeyboardInterrupt as interrupt:
        raised, summary.exit, summary.error = interrupt, 1, "interrupted: run it again to go on"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "build or store"
        text = f"{where}: {escape(error.strerror or str(error))}: run it again to go on"
        raised, summary.exit, summary.error = error, 1, text
    summary.seconds = time.monotonic() - began
    return Ended(summary, raised, lines)
