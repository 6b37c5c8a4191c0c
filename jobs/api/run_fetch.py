"""One run of fetch, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of fetch imports nothing of another command.
"""

from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended, run_here
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.fetching.options import FetchSettings
from rocketmq_reindex.jobs.fetching.run import Fetch, FetchResult


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchResult]:
    """Fetch. ``settings_of`` may raise UsageError."""
    result = FetchResult()

    def work() -> list[str]:
        settings = settings_of()
        with interrupts:
            return Fetch(settings, result).run()

    return run_here(result, work, interrupts, "build or store", ": run it again to go on")
