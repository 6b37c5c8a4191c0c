"""``rmq-reindex verify``, and the entry for spark-submit: ``spark-submit ... jobs/verify.py STORE ...``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.command.failures import Interrupts, outcome
from rocketmq_reindex.jobs.publishing.whole_file import write_whole
from rocketmq_reindex.jobs.verifying.options import parse_verify
from rocketmq_reindex.jobs.verifying.summary import VerifySummary
from rocketmq_reindex.jobs.watch import Watch


def verify(arguments: Sequence[str]) -> int:
    """One verify; returns the exit status: 0 clean, 4 differences, 1 an error, 2 wrong usage."""
    summary, interrupts = VerifySummary(), Interrupts()
    watch = Watch("verify", arguments)
    try:
        settings = parse_verify(arguments)
        with interrupts:
            watch.begun(settings, settings.stores)
            # A wrong path is told before a JVM is started.
            logs = settings.logs()
            from rocketmq_reindex.jobs.spark.kernels import NOTE, kept
            from rocketmq_reindex.jobs.spark.session import starting

            with kept() as anew, starting(settings.master):
                from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
                from rocketmq_reindex.jobs.spark.engine import SparkEngines
                from rocketmq_reindex.jobs.verifying.against import Against
                from rocketmq_reindex.jobs.verifying.run import Verify

                with daemon_ahead(), watch.reporter() as reporter:
                    engines = SparkEngines(settings.master)
                    job = Against(settings, reporter, engines) if settings.against else Verify(settings, reporter, engines)
                    job.summary.started = summary.started
                    summary = job.summary
                    job.run(logs)
                    if anew:
                        summary.warn(NOTE)
                watch.over(summary)
                if settings.report:
                    write_whole(settings.report, summary.to_json() + "\n")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.over(summary)
        summary.exit, summary.error = outcome(error, interrupts, "input")
    watch.ended(summary)
    if "--json" in arguments:
        print(summary.to_json())
    elif not summary.error:
        print(summary.to_text())
    return summary.exit


if __name__ == "__main__":
    sys.exit(verify(sys.argv[1:]))
