"""One run of build, as the command line and the Python API share it. A failure is part of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketmq_reindex.jobs.api.ahead import engines_ahead, local_ahead
from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED, Interrupts, outcome
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.building.settings import BuildSettings
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.watching.progress import Reporter


def make_build(settings: BuildSettings, reporter: Reporter, engines: Engines) -> Build:
    """Return the run of a build or a repair, with the steps and the recorder that its settings ask for."""
    from rocketmq_reindex.jobs.building.run import Build
    from rocketmq_reindex.jobs.incremental.increment import steps_of
    from rocketmq_reindex.jobs.repairing.options import RepairSettings
    from rocketmq_reindex.jobs.repairing.steps import repair_steps
    from rocketmq_reindex.jobs.tables.making import recorder_of

    make_steps = repair_steps if isinstance(settings, RepairSettings) else steps_of
    return Build(settings, reporter, engines, make_steps, recorder_of)


def run_build(
    settings_of: Callable[[], BuildSettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None,
    show_plan: Callable[[str], None] | None = None, command: str = "build",
) -> Ended[Summary]:  # fmt: skip
    """Build, or with ``command`` repair. ``settings_of`` may raise UsageError.

    ``spark``: the session to work in, instead of one that is looked for.

    ``show_plan`` gets the lines of a dry run, before the warnings are shown.
    """
    summary, lines = Summary(), list[str]()
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
                    job = make_build(settings, reporter, engines)
                    job.summary.started = summary.started
                    summary = job.summary
                    job.run(inputs)
                    if show_plan:
                        for line in job.plan:
                            show_plan(line)
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
    return Ended(summary, raised, [*job.plan, *lines] if job else lines, interrupts.seen)
