"""One run of build, as the command line and the Python API share it. A failure is part of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rocketmq_reindex.jobs.api.ahead import engines_ahead, local_ahead
from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED, Interrupts, outcome
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.settings import BuildSettings
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.watching.progress import Reporter


B = TypeVar("B", bound="BuildResult")


def make_build(settings: BuildSettings, reporter: Reporter, engines: Engines, result: BuildResult | None = None) -> Build:
    """Return the run of a build or a repair, with the steps and the recorder that its settings ask for."""
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.incremental.increment import steps_of
    from rocketmq_reindex.jobs.repairing.options import RepairSettings
    from rocketmq_reindex.jobs.repairing.steps import repair_steps
    from rocketmq_reindex.jobs.tables.making import recorder_of

    repairs = isinstance(settings, RepairSettings)
    result = result or (RepairResult() if repairs else BuildResult())
    return Build(settings, reporter, engines, repair_steps if repairs else steps_of, recorder_of, result)


def run_build(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None,
    show_plan: Callable[[str], None] | None = None,
) -> Ended[BuildResult]:  # fmt: skip
    """Build. ``settings_of`` may raise UsageError. ``show_plan`` gets the lines of a dry run, before the warnings are shown.

    ``spark``: the session to work in, instead of one that is looked for.
    """
    from rocketmq_reindex.jobs.building.summary import BuildResult

    return _run("build", BuildResult(), settings_of, watch, interrupts, spark, show_plan)


def run_repair(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[RepairResult]:
    """Repair; the arguments are those of ``run_build``."""
    from rocketmq_reindex.jobs.building.summary import RepairResult

    return _run("repair", RepairResult(), settings_of, watch, interrupts, spark, None)


def _run(
    command: str, result: B, settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts,
    spark: SparkSession | None, show_plan: Callable[[str], None] | None,
) -> Ended[B]:  # fmt: skip
    job: Build | None = None
    raised: BaseException | None = None
    try:
        settings = settings_of()
        with interrupts:
            watch.start(settings, (*settings.inputs, settings.out))
            from rocketmq_reindex.jobs.watching.compiling import NOTE, kept

            with kept() as compiled_once, local_ahead(command, settings, spark, not settings.dry_run) as local:
                # numba alone takes half a second, and the processes of a local engine start meanwhile.
                from rocketmq_reindex.jobs.building.inputs import look_at
                from rocketmq_reindex.jobs.incremental.early import needs_engine
                from rocketmq_reindex.jobs.tables.making import hdfs_user

                # What is refused without a look into the log is refused before a JVM is started.
                inputs = look_at(settings)
                settings = inputs.settings
                needed = needs_engine(settings, inputs)
                if needed:
                    watch.compiles()
                delta, user = settings.keeps_rows, hdfs_user(settings.tables)
                with (
                    engines_ahead(local, settings.master, needed, delta, user, spark) as engines,
                    watch.reporter() as reporter,
                ):
                    job = make_build(settings, reporter, engines, result)
                    job.run(inputs)
                    if show_plan:
                        for line in result.plan or ():
                            show_plan(line)
                    if compiled_once and not settings.dry_run:
                        # This is no part of the result, so it is not in the manifest.
                        result.warn(NOTE)
        watch.stop_clock(result)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.stop_clock(result)
        raised = error
        result.exit, result.error = outcome(error, interrupts, PLACE, UNPUBLISHED)
    with interrupts.ignored():
        published = job is not None and job.published
        if published and result.error:
            # What went wrong after the rename takes nothing back.
            result.warnings.append(f"published all the same: {result.error.removesuffix(UNPUBLISHED)}")
            result.exit, result.error = result.exit_by_loss, None
        watch.end(result, lines=True, published=published)
    result.end(result.to_text() if raised is None else "")
    return Ended(result, raised, interrupts.seen)
