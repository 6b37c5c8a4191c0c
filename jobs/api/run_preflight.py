"""One preflight, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of preflight imports nothing of another command.
"""

from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended, run_here
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightSummary, lines_of
from rocketmq_reindex.jobs.watching import compiling
from rocketmq_reindex.jobs.watching.stages import Stages


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightSummary]:
    """Work out a start. ``settings_of`` may raise UsageError and InputError. ``quiet``: no progress is shown on stderr."""
    summary = PreflightSummary()

    def run() -> None:
        with Stages(quiet, compiling.START) as told:
            Preflight(settings_of(), summary, told).run()

    return run_here(summary, run, lines_of)
