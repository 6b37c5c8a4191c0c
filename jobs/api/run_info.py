"""One look at a store, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of info imports nothing of another command.
"""

from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended, run_here
from rocketmq_reindex.jobs.describing.look import InfoSummary, StoreLook, lines_of
from rocketmq_reindex.jobs.store.settings import StoreSettings


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoSummary]:
    """Look at a store. ``settings_of`` may raise UsageError."""
    summary = InfoSummary()
    return run_here(summary, lambda: StoreLook(settings_of(), summary).run(), lines_of)
