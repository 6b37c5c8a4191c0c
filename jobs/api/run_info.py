"""One look at a store, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of info imports nothing of another command.
"""

from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended, run_here
from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook, lines_of
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.jobs.store.settings import StoreSettings


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoResult]:
    """Look at a store. ``settings_of`` may raise UsageError."""
    result = InfoResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"):
            StoreLook(settings_of(), result).run()
        return lines_of(result)

    return run_here(result, work)
