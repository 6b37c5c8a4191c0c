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
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED, Interrupts, outcome
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.store.folders import check_apart, failures_as_errors
from rocketmq_reindex.storage_format.errors import ReindexError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.inputs import Inputs
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.settings import BuildSettings
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.describing.look import InfoResult
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.fetching.options import FetchSettings
    from rocketmq_reindex.jobs.fetching.run import FetchResult
    from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
    from rocketmq_reindex.jobs.preflighting.run import PreflightResult
    from rocketmq_reindex.jobs.store.settings import Commitlog, StoreSettings
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


_EXPECTED: tuple[type[BaseException], ...] = (ReindexError, OSError, KeyboardInterrupt)
"""what ends a command that has no engine: all else is a fault of this package, and is shown with its trace"""


def _run_here(
    result: R, work: Callable[[], list[str]], interrupts: Interrupts | None = None, place: str = "STORE", more: str = ""
) -> Ended[R]:
    """Run a command without an engine. ``work`` fills ``result``, and returns the lines for people."""
    timed: Any = result
    raised: BaseException | None = None
    lines, began = list[str](), time.monotonic()
    try:
        lines = work()
    except _EXPECTED as error:
        raised = error
        result.exit, result.error = outcome(error, interrupts, place, more, has_jvm=False)
    timed.seconds = round(time.monotonic() - began, 3)
    result.end("\n".join(lines))
    return Ended(result, raised)


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoResult]:
    """Look at a store. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook, lines_of

    result = InfoResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"):
            StoreLook(settings_of(), result).run()
        return lines_of(result)

    return _run_here(result, work)


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightResult]:
    """Work out a start. ``settings_of`` may raise UsageError and InputError. ``quiet``: no progress is shown on stderr."""
    from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult, lines_of
    from rocketmq_reindex.jobs.watching import compiling
    from rocketmq_reindex.jobs.watching.stages import Stages

    result = PreflightResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"), Stages(quiet, compiling.START) as progress:
            Preflight(settings_of(), result, progress).run()
        return lines_of(result)

    return _run_here(result, work)


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchResult]:
    """Fetch. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.fetching.run import Fetch, FetchResult

    result = FetchResult()

    def work() -> list[str]:
        settings = settings_of()
        with interrupts:
            return Fetch(settings, result).run()

    return _run_here(result, work, interrupts, "build or store", ": run it again to go on")


# -------------------------------------------------------------------------------------------------------------- with an engine
# One run of a command that has an engine: session, engine and ending are the same for build, repair and verify.


class _Command(abc.ABC, Generic[R, S]):
    """What differs between the commands that have an engine."""

    place, more = PLACE, UNPUBLISHED
    """what the line of an error says (``outcome``)"""
    tells_warnings = True
    """warnings are lines on stderr; else they stand in the text"""
    settings: S

    def __init__(self, name: str, result: R, settings_of: Callable[[], S]) -> None:
        self.name, self.result, self.settings_of = name, result, settings_of

    @property
    def writes(self) -> bool:
        """False for a dry run, which uses no engine."""
        return True

    @property
    def published(self) -> bool:
        """Whether what was built stands in its place now."""
        return False

    @property
    def out(self) -> str | None:
        """DIR, of a build or a repair."""
        return None

    @property
    @abc.abstractmethod
    def apart(self) -> Iterable[str]:
        """The folders in which no file of metrics may lie."""

    def refuse(self) -> None:
        """Refuse what costs nothing to look at, before a process is started."""

    @abc.abstractmethod
    def look(self) -> Needs:
        """Look at the input. What is refused without a look into the log is refused before a JVM is started."""

    @abc.abstractmethod
    def work(self, reporter: Reporter, engines: Engines) -> None:
        """Do the work, and fill the result."""

    def after_work(self) -> None:
        """The work is done, and the clock has stopped."""

    def correct_ending(self) -> None:
        """Look once more how the run ended, before that is shown."""


def watched_run(settings: StoreSettings, apart: Iterable[str], out: str | None = None, *, figures: bool = True) -> WatchedRun:
    """Return what is said of a run while it goes on. ``figures``: it has some for a file of metrics.

    Raises InputError for a file of metrics in a folder of ``apart``.
    """
    from rocketmq_reindex.jobs.watching.watch import WatchedRun

    if settings.metrics:
        check_apart("--metrics", settings.metrics, apart)
    store = settings.store_name or settings.store or ",".join(settings.commitlogs)
    return WatchedRun(store, out, settings.metrics if figures else "", settings.progress, settings.engine, settings.master)


def _run_with_engine(command: _Command[R, S], watch: Watch, interrupts: Interrupts, spark: SparkSession | None) -> Ended[R]:
    """Run a command. ``spark``: the session to work in, instead of one that is looked for."""
    result: Any = command.result
    raised: BaseException | None = None
    try:
        settings, said = with_engine(command.settings_of(), spark)
        command.settings = settings
        with interrupts:
            watch.start(watched_run(settings, command.apart, command.out, figures=command.writes))
            watch.says(said)
            command.refuse()
            from rocketmq_reindex.jobs.watching.compiling import NOTE, kept

            with kept() as compiled_once, local_ahead(command.name, settings, spark, command.writes) as local:
                # numba alone takes half a second, and the processes of a local engine start meanwhile.
                needs = command.look()
                if needs.engine:
                    watch.compiles()
                with engines_ahead(local, settings.master, needs, spark) as engines, watch.reporter() as reporter:
                    command.work(reporter, engines)
                    if compiled_once and command.writes:
                        # This is no part of what is built, so it is not in a manifest.
                        result.warn(NOTE)
            watch.stop_clock(result)
            command.after_work()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        raised = error
        watch.stop_clock(result)
        result.exit, result.error = outcome(error, interrupts, command.place, command.more)
    with interrupts.ignored():
        command.correct_ending()
        watch.end(result, lines=command.tells_warnings, published=command.published)
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

    @property
    def writes(self) -> bool:
        return not self.settings.dry_run

    @property
    def published(self) -> bool:
        return self.job is not None and self.job.published

    @property
    def out(self) -> str | None:
        return self.settings.out

    @property
    def apart(self) -> Iterable[str]:
        return (*self.settings.inputs, self.settings.out)

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
        if self.show_plan and self.result.plan is not None:
            self.show_plan("\n".join(self.result.plan))

    def correct_ending(self) -> None:
        result = self.result
        if self.published and result.error:
            # What went wrong after the rename takes nothing back.
            result.warnings.append(f"published all the same: {result.error.removesuffix(UNPUBLISHED)}")
            result.exit, result.error = result.exit_by_loss, None


class _VerifyCommand(_Command["VerifyResult", "VerifySettings"]):
    """Verify."""

    place, more = "input", ""
    tells_warnings = False
    logs: list[Commitlog]

    @property
    def apart(self) -> Iterable[str]:
        return self.settings.stores

    def refuse(self) -> None:
        self.logs = self.settings.logs()

    def look(self) -> Needs:
        return Needs()

    def work(self, reporter: Reporter, engines: Engines) -> None:
        from rocketmq_reindex.jobs.verifying.against import Against
        from rocketmq_reindex.jobs.verifying.run import Verify

        kind = Against if self.settings.against else Verify
        kind(self.settings, reporter, engines, self.result).run(self.logs)

    def after_work(self) -> None:
        from rocketmq_reindex.jobs.publishing.layout import write_whole

        if self.settings.report:
            write_whole(self.settings.report, self.result.to_json() + "\n")


def run_build(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None,
    show_plan: Callable[[str], None] | None = None,
) -> Ended[BuildResult]:  # fmt: skip
    """Build. ``settings_of`` may raise UsageError. ``show_plan`` gets the plan of a dry run, before the warnings are shown.

    ``spark``: the session to work in, instead of one that is looked for.
    """
    from rocketmq_reindex.jobs.building.summary import BuildResult

    command = _BuildCommand("build", BuildResult(), settings_of)
    command.show_plan = show_plan
    return _run_with_engine(command, watch, interrupts, spark)


def run_repair(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[RepairResult]:
    """Repair; the arguments are those of ``run_build``."""
    from rocketmq_reindex.jobs.building.summary import RepairResult

    return _run_with_engine(_BuildCommand("repair", RepairResult(), settings_of), watch, interrupts, spark)


def run_verify(
    settings_of: Callable[[], VerifySettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[VerifyResult]:
    """Verify. ``settings_of`` may raise UsageError and InputError. ``spark`` as for ``run_build``."""
    from rocketmq_reindex.jobs.verifying.summary import VerifyResult

    return _run_with_engine(_VerifyCommand("verify", VerifyResult(), settings_of), watch, interrupts, spark)
