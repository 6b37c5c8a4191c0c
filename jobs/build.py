"""``rmq-reindex build``, and the entry for spark-submit: ``spark-submit ... jobs/build.py STORE --out DIR ...``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.command.failures import PLACE, UNPUBLISHED, Interrupts, outcome
from rocketmq_reindex.jobs.incremental.early import needs_spark
from rocketmq_reindex.jobs.tables.hadoop import hdfs_user
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.run import Build


def build(arguments: Sequence[str]) -> int:
    """One build; returns the exit status."""
    summary, text = Summary(), ""
    watch = Watch("build", arguments)
    interrupts = Interrupts()
    job: Build | None = None
    try:
        settings = parse_settings(arguments)
        with interrupts:
            watch.begun(settings, (*settings.inputs, settings.out))
            # What is refused without a look into the log is told before a JVM is started.
            inputs = look_at(settings)
            from rocketmq_reindex.jobs.spark.kernels import NOTE, kept
            from rocketmq_reindex.jobs.spark.session import starting

            delta, user = bool(settings.tables), hdfs_user(settings.tables)
            begin = starting(settings.master, delta, user) if needs_spark(settings, inputs) else contextlib.nullcontext()
            with kept() as anew, begin:
                # numba alone takes a second, and the session starts meanwhile.
                from rocketmq_reindex.jobs.run import Build
                from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
                from rocketmq_reindex.jobs.spark.engine import SparkEngines

                with daemon_ahead(), watch.reporter() as reporter:
                    engines = SparkEngines(settings.master, delta=delta, hadoop_user=user)
                    job = Build(settings, reporter, engines)
                    job.summary.started = summary.started
                    summary = job.summary
                    job.run(inputs)
                    if anew and not settings.dry_run:
                        # Not of the result, so not in the manifest.
                        summary.warn(NOTE)
        watch.over(summary)
        text = "" if settings.dry_run else summary.to_text()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.over(summary)
        summary.exit, summary.error = outcome(error, interrupts, PLACE, UNPUBLISHED)
    with interrupts.ignored():
        published = job is not None and job.published
        if published and summary.error:
            # What went wrong after the rename takes nothing back.
            summary.warnings.append(f"published all the same: {summary.error.removesuffix(UNPUBLISHED)}")
            summary.exit, summary.error = 3 if summary.lost else 0, None
        watch.ended(summary, lines=True, published=published)
    if "--json" in arguments:
        print(summary.to_json())
    elif text and not summary.error:
        print(text)
    return summary.exit


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
