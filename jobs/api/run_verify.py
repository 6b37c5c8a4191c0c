"""One run of verify, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of verify imports nothing of another command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketmq_reindex.jobs.api.ahead import engines_ahead, local_ahead
from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.command.failures import Interrupts, outcome
from rocketmq_reindex.jobs.publishing.layout import write_whole
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.verifying.options import VerifySettings


def run_verify(
    settings_of: Callable[[], VerifySettings], watch: Watch, interrupts: Interrupts, spark: SparkSession | None = None
) -> Ended[VerifyResult]:
    """Verify. ``settings_of`` may raise UsageError and InputError. ``spark`` as for ``run_build``."""
    result = VerifyResult()
    raised: BaseException | None = None
    try:
        settings = settings_of()
        with interrupts:
            watch.start(settings, settings.stores)
            # A wrong path is refused before anything is started.
            logs = settings.logs()
            watch.compiles()
            from rocketmq_reindex.jobs.watching.compiling import NOTE, kept

            with (
                kept() as compiled_once,
                local_ahead("verify", settings, spark) as local,
                engines_ahead(local, settings.master, spark=spark) as engines,
            ):
                from rocketmq_reindex.jobs.verifying.against import Against
                from rocketmq_reindex.jobs.verifying.run import Verify

                with watch.reporter() as reporter:
                    kind = Against if settings.against else Verify
                    kind(settings, reporter, engines, result).run(logs)
                    if compiled_once:
                        result.warn(NOTE)
                watch.stop_clock(result)
                if settings.report:
                    write_whole(settings.report, result.to_json() + "\n")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        watch.stop_clock(result)
        raised = error
        result.exit, result.error = outcome(error, interrupts, "input")
    watch.end(result)
    result.end(result.to_text() if raised is None else "")
    return Ended(result, raised, interrupts.seen)
