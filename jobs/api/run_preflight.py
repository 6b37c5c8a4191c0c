"""One preflight, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of preflight imports nothing of another command.
"""

from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended, run_here
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult, lines_of
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.jobs.watching import compiling
from rocketmq_reindex.jobs.watching.stages import Stages


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightResult]:
    """Work out a start. ``settings_of`` may raise UsageError and InputError. ``quiet``: no progress is shown on stderr."""
    result = PreflightResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"), Stages(quiet, compiling.START) as progress:
            Preflight(settings_of(), result, progress).run()
        return lines_of(result)

    return run_here(result, work)
