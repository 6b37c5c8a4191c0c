"""How each command with an engine is run, for the command line and the Python API. A failure is part of what it ends with.

Nothing slow is imported here: a command imports what it needs once its settings are known.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rocketmq_reindex.jobs.api.engines_ahead import Needs, engines_ahead, local_ahead, needs_engine, with_engine
from rocketmq_reindex.jobs.api.running_here import Ended
from rocketmq_reindex.jobs.command.results import PLACE, UNPUBLISHED, Interrupts, Result, outcome
from rocketmq_reindex.jobs.store.folders import check_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.inputs import Inputs
    from rocketmq_reindex.jobs.building.options import BuildSettings
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.store.settings import Commitlog, StoreSettings
    from rocketmq_reindex.jobs.verifying.options import VerifySettings
    from rocketmq_reindex.jobs.verifying.summary import VerifyResult
    from rocketmq_reindex.jobs.watching.progress import Reporter
    from rocketmq_reindex.jobs.watching.watch import Watch, WatchedRun

R = TypeVar("R", bound=Result)
S = TypeVar("S", bound="StoreSettings")
B = TypeVar("B", bound="BuildResult")

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

    Raises InputError for a file of metrics in a folder of ``apart``, that holds something else, or that cannot be written.
    """
    from rocketmq_reindex.jobs.publishing.layout import check_writable
    from rocketmq_reindex.jobs.watching.watch import WatchedRun

    if settings.metrics:
        check_apart("--metrics", settings.metrics, apart)
        check_writable("--metrics", settings.metrics, b"rmq_reindex_", "figures of a run")
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
            from rocketmq_reindex.jobs.watching.watch import COMPILING_NOTE, loops_kept

            with loops_kept() as compiled_once, local_ahead(command.name, settings, spark, command.uses_engine) as local:
                # numba alone takes half a second, and the processes of a local engine start meanwhile.
                needs = command.look()
                if needs.engine:
                    watch.compiles()
                with engines_ahead(local, settings.master, needs, spark) as engines, watch.reporter() as reporter:
                    command.work(reporter, engines)
                    if compiled_once and command.uses_engine:
                        # This is no part of what is built, so it is not in a manifest.
                        result.warn(COMPILING_NOTE)
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
    from rocketmq_reindex.jobs.building.incremental import steps_of
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.tables.making import recorder_of

    if not settings.mends:
        return Build(settings, reporter, engines, steps_of, recorder_of, result or BuildResult())
    # A build starts without it.
    from rocketmq_reindex.jobs.repairing.plain import repair_steps

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
