"""How each command is run, for the command line and for the Python API. A failure is part of what a run ends with.

Nothing slow is imported here: a command imports what it needs once its settings are known.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rocketmq_reindex.jobs.api.engines_ahead import Needs, engines_ahead, local_ahead, with_engine
from rocketmq_reindex.jobs.command.results import PLACE, UNPUBLISHED, Interrupts, Result, outcome
from rocketmq_reindex.jobs.store.folders import check_apart, failures_as_errors
from rocketmq_reindex.storage_format.errors import ExitStatus, ReindexError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.inputs import Inputs
    from rocketmq_reindex.jobs.building.options import BuildSettings
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.describing.look import InfoResult
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.fetching.options import FetchSettings
    from rocketmq_reindex.jobs.fetching.run import FetchResult
    from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
    from rocketmq_reindex.jobs.preflighting.run import PreflightResult
    from rocketmq_reindex.jobs.querying.answer import TakeMessages
    from rocketmq_reindex.jobs.querying.options import Query
    from rocketmq_reindex.jobs.reporting.make import ReportResult, ReportSettings
    from rocketmq_reindex.jobs.store.folders import Notes
    from rocketmq_reindex.jobs.store.settings import Commitlog, StoreSettings
    from rocketmq_reindex.jobs.tracing.options import Trace
    from rocketmq_reindex.jobs.tracing.timeline import TraceResult
    from rocketmq_reindex.jobs.verifying.options import VerifySettings
    from rocketmq_reindex.jobs.verifying.summary import VerifyResult
    from rocketmq_reindex.jobs.watching.progress import Reporter
    from rocketmq_reindex.jobs.watching.watch import Watch, WatchedRun

R = TypeVar("R", bound=Result)
S = TypeVar("S", bound="StoreSettings")
B = TypeVar("B", bound="BuildResult")

# ---------------------------------------------------------------------------------------------------------------------- endings
# What a run ends with, and the runs of commands that have no engine.


@dataclass(frozen=True)
class Ended(Generic[R]):
    """A run that has ended. ``result.error`` is None where it did what it was asked to; ``error`` is what was raised."""

    result: R
    error: BaseException | None
    interrupted: bool = False
    """whether a signal was seen, also where py4j made another error of it"""


def _run_here(
    ended: R, work: Callable[[], list[str]], interrupts: Interrupts | None = None, place: str = "STORE", more: str = ""
) -> Ended[R]:
    """Run a command without an engine. ``work`` fills the result, and returns the lines for people."""
    result: Any = ended
    raised: BaseException | None = None
    lines, began = list[str](), time.monotonic()
    try:
        lines = work()
    except (ReindexError, OSError, KeyboardInterrupt) as error:
        # All else is a fault of this package, and is shown with its trace.
        raised = error
        result.exit, result.error = outcome(error, interrupts, place, more, has_jvm=False)
    if "seconds" in result.json_keys():
        result.seconds = round(time.monotonic() - began, 3)
    result.end("\n".join(lines))
    return Ended(ended, raised)


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoResult]:
    """Look at a store. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook, lines_of

    result = InfoResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"):
            StoreLook(settings_of(), result).run()
        return lines_of(result)

    return _run_here(result, work)


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightResult]:
    """Work out a start. Return how that ended. ``settings_of`` may raise UsageError and InputError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult, lines_of
    from rocketmq_reindex.jobs.watching import compiling
    from rocketmq_reindex.jobs.watching.watch import Stages

    result = PreflightResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"), Stages(quiet, compiling.START) as progress:
            Preflight(settings_of(), result, progress).run()
        return lines_of(result)

    return _run_here(result, work)


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchResult]:
    """Fetch. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.fetching.run import Fetch, FetchResult

    result = FetchResult()

    def work() -> list[str]:
        settings = settings_of()
        with interrupts:
            return Fetch(settings, result).run()

    return _run_here(result, work, interrupts, "build or store", ": run it again to go on")


def run_report(settings_of: Callable[[], ReportSettings]) -> Ended[ReportResult]:
    """Draw and write a page. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.reporting.make import ReportResult, write_page

    result = ReportResult()

    def work() -> list[str]:
        with failures_as_errors("input or output"):
            return write_page(settings_of(), result)

    return _run_here(result, work)


def run_query(
    settings_of: Callable[[], Query], notes: Notes, take: TakeMessages, *, quiet: bool = False
) -> ExitStatus:  # fmt: skip
    """Answer one question, and return the exit status: FAILED where nothing was found and something could not be read.

    ``take`` shows or keeps the messages as they are found: there may be any number. Raises UsageError and InputError.
    """
    from rocketmq_reindex.jobs.querying.answer import answer
    from rocketmq_reindex.jobs.querying.search import Search
    from rocketmq_reindex.jobs.watching import compiling
    from rocketmq_reindex.jobs.watching.watch import Stages

    with failures_as_errors("STORE"):
        asked, stages = settings_of(), Stages(quiet, compiling.SCAN)
        for note in asked.conf_notes:
            notes.add("passed over in broker.conf", note, lost=False)
        with stages, Search(asked.store, asked.roots, notes, sizes=asked.sizes, scan=asked.scan, progress=stages) as search:
            count = take(answer(asked, search), search.log, asked, notes)
        notes.close()
    return ExitStatus.FAILED if notes.lost and not count else ExitStatus.DONE


def run_trace(settings_of: Callable[[], Trace], *, quiet: bool = False) -> Ended[TraceResult]:
    """Trace messages. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.publishing.layout import check_writable, write_whole
    from rocketmq_reindex.jobs.querying.table import terminal_width
    from rocketmq_reindex.jobs.reporting.parts import traces
    from rocketmq_reindex.jobs.store.folders import Notes
    from rocketmq_reindex.jobs.tracing.run import run
    from rocketmq_reindex.jobs.tracing.timeline import TraceResult
    from rocketmq_reindex.jobs.watching import compiling
    from rocketmq_reindex.jobs.watching.watch import Stages
    from rocketmq_reindex.version import __version__

    result = TraceResult()

    def work() -> list[str]:
        asked, notes = settings_of(), Notes(result.warnings.append, result.warnings.append)
        if asked.html is not None:
            check_writable("--html", asked.html, b"<!doctype html>", "a page of trace")
        with failures_as_errors("--store"), Stages(quiet, compiling.SCAN) as progress:
            run(asked, result, notes, progress)
        notes.close()
        result.decide(notes.lost)
        if asked.html is None:
            return result.lines(terminal_width())
        write_whole(asked.html, traces(result.to_dict(), __version__))
        return [*result.lines(terminal_width()), "", f"wrote    {escape(asked.html)}"]

    return _run_here(result, work)


# -------------------------------------------------------------------------------------------------------------- with an engine
# One run of a command that has an engine: session, engine and ending are the same for build, repair and verify.


class _Command(abc.ABC, Generic[R, S]):
    """What differs between the commands that have an engine."""

    place, more = PLACE, UNPUBLISHED
    """what the line of an error says (``outcome``)"""
    uses_engine = True
    settings: S

    def __init__(self, name: str, result: R, settings_of: Callable[[], S]) -> None:
        self.name, self.result, self.settings_of = name, result, settings_of

    @abc.abstractmethod
    def begin(self, watch: Watch) -> None:
        """Tell of the run's start."""

    @abc.abstractmethod
    def look(self) -> Needs:
        """Look at the input. Return what the run needs. What is refused here is refused before a JVM is started."""

    @abc.abstractmethod
    def work(self, reporter: Reporter, engines: Engines) -> None:
        """Do the work, and fill the result."""

    @abc.abstractmethod
    def hand_out(self) -> None:
        """Write or show what was asked for besides the result. The work is done, and the clock has stopped."""

    @abc.abstractmethod
    def end(self, watch: Watch) -> None:
        """Tell how the run ended."""


def watched_run(settings: StoreSettings, apart: Iterable[str], out: str | None = None, *, figures: bool = True) -> WatchedRun:
    """Return what is said of a run while it goes on. ``figures``: it has some for a file of metrics.

    Raises InputError for a file of metrics in a folder of ``apart``, and for one that holds something else.
    """
    from rocketmq_reindex.jobs.publishing.layout import check_no_store_around, check_replaceable
    from rocketmq_reindex.jobs.watching.watch import WatchedRun

    if settings.metrics:
        check_apart("--metrics", settings.metrics, apart)
        check_no_store_around(f"--metrics {escape(settings.metrics)}", settings.metrics, "file")
        check_replaceable("--metrics", settings.metrics, b"rmq_reindex_", "figures of a run")
    store = settings.store_name or settings.store or ",".join(settings.commitlogs)
    return WatchedRun(store, out, settings.metrics if figures else "", settings.progress, settings.engine, settings.master)


def _run_with_engine(command: _Command[R, S], watch: Watch, interrupts: Interrupts, spark: SparkSession | None) -> Ended[R]:
    """Run a command. Return how that ended. ``spark``: the session to work in, instead of one that is looked for."""
    result: Any = command.result
    raised: BaseException | None = None
    try:
        settings, engine_line = with_engine(command.settings_of(), spark)
        command.settings = settings
        with interrupts:
            command.begin(watch)
            watch.says(engine_line)
            from rocketmq_reindex.jobs.watching.compiling import NOTE, kept

            with kept() as compiled_once, local_ahead(command.name, settings, spark, command.uses_engine) as local:
                # numba alone takes half a second, and the processes of a local engine start meanwhile.
                needs = command.look()
                if needs.engine:
                    watch.compiles()
                with engines_ahead(local, settings.master, needs, spark) as engines, watch.reporter() as reporter:
                    command.work(reporter, engines)
                    if compiled_once and command.uses_engine:
                        # This is no part of what is built, so it is not in a manifest.
                        result.warn(NOTE)
            watch.stop_clock(result)
            command.hand_out()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        raised = error
        watch.stop_clock(result)
        result.exit, result.error = outcome(error, interrupts, command.place, command.more)
    with interrupts.ignored():
        command.end(watch)
    result.end(result.to_text() if raised is None else "")
    return Ended(command.result, raised, interrupts.seen)


def make_build(settings: BuildSettings, reporter: Reporter, engines: Engines, result: BuildResult | None = None) -> Build:
    """Return the run of a build or a repair, with the steps and the recorder that its settings ask for."""
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.incremental.increment import steps_of
    from rocketmq_reindex.jobs.tables.making import recorder_of

    if not settings.mends:
        return Build(settings, reporter, engines, steps_of, recorder_of, result or BuildResult())
    # A build starts without it.
    from rocketmq_reindex.jobs.repairing.steps import repair_steps

    return Build(settings, reporter, engines, repair_steps, recorder_of, result or RepairResult())


class _BuildCommand(_Command[B, "BuildSettings"]):
    """Build, or repair. ``show_plan`` gets the plan of a dry run."""

    show_plan: Callable[[str], None] | None = None
    inputs: Inputs
    job: Build | None = None

    def begin(self, watch: Watch) -> None:
        settings = self.settings
        self.uses_engine = not settings.dry_run
        watch.start(watched_run(settings, (*settings.inputs, settings.out), settings.out, figures=self.uses_engine))

    def look(self) -> Needs:
        from rocketmq_reindex.jobs.building.inputs import look_at
        from rocketmq_reindex.jobs.incremental.early import needs_engine
        from rocketmq_reindex.jobs.tables.making import hdfs_user

        self.inputs = look_at(self.settings)
        self.settings = self.inputs.settings
        needed = needs_engine(self.settings, self.inputs)
        return Needs(needed, self.settings.keeps_rows, hdfs_user(self.settings.tables))

    def work(self, reporter: Reporter, engines: Engines) -> None:
        self.job = make_build(self.settings, reporter, engines, self.result)
        self.job.run(self.inputs)

    def hand_out(self) -> None:
        if self.show_plan and self.result.plan is not None:
            self.show_plan("\n".join(self.result.plan))

    def end(self, watch: Watch) -> None:
        result, published = self.result, self.job is not None and self.job.published
        if published and result.error:
            # What went wrong after the rename takes nothing back.
            result.warnings.append(f"published all the same: {result.error.removesuffix(UNPUBLISHED)}")
            result.exit, result.error = result.exit_by_loss, None
        watch.end(result, lines=True, published=published)


class _VerifyCommand(_Command["VerifyResult", "VerifySettings"]):
    """Verify."""

    place, more = "input", ""
    logs: list[Commitlog]

    def begin(self, watch: Watch) -> None:
        watch.start(watched_run(self.settings, self.settings.stores))

    def look(self) -> Needs:
        self.logs = self.settings.logs()
        return Needs()

    def work(self, reporter: Reporter, engines: Engines) -> None:
        from rocketmq_reindex.jobs.verifying.run import Against, Verify

        kind = Against if self.settings.against else Verify
        kind(self.settings, reporter, engines, self.result).run(self.logs)

    def hand_out(self) -> None:
        from rocketmq_reindex.jobs.publishing.layout import write_whole

        if self.settings.report:
            write_whole(self.settings.report, self.result.to_json() + "\n")

    def end(self, watch: Watch) -> None:
        watch.end(self.result)


def run_build(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None,
    show_plan: Callable[[str], None] | None = None,
) -> Ended[BuildResult]:  # fmt: skip
    """Build. Return how that ended. ``settings_of`` may raise UsageError.

    ``show_plan`` gets the plan of a dry run, before the warnings are shown.

    ``spark``: the session to work in, instead of one that is looked for.
    """
    from rocketmq_reindex.jobs.building.summary import BuildResult

    command = _BuildCommand("build", BuildResult(), settings_of)
    command.show_plan = show_plan
    return _run_with_engine(command, watch, interrupts, spark)


def run_repair(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[RepairResult]:
    """Repair. Return how that ended. The arguments are those of ``run_build``."""
    from rocketmq_reindex.jobs.building.summary import RepairResult

    return _run_with_engine(_BuildCommand("repair", RepairResult(), settings_of), watch, interrupts, spark)


def run_verify(
    settings_of: Callable[[], VerifySettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[VerifyResult]:
    """Verify. Return how that ended. ``settings_of`` may raise UsageError and InputError. ``spark`` as for ``run_build``."""
    from rocketmq_reindex.jobs.verifying.summary import VerifyResult

    return _run_with_engine(_VerifyCommand("verify", VerifyResult(), settings_of), watch, interrupts, spark)
