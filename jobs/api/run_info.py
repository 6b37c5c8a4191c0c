"""One look at a store, as the command line and the Python API share it. A failure is part of what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.api.failing import failures_as_errors
from rocketmq_reindex.jobs.command.failures import INTERRUPTED
from rocketmq_reindex.jobs.describing.look import Look
from rocketmq_reindex.jobs.describing.summary import InfoSummary, lines_of
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.errors import ReindexError


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoSummary]:
    """Look at a store. ``settings_of`` may raise UsageError."""
    summary = InfoSummary()
    raised: BaseException | None = None
    began = time.monotonic()
    try:
        with failures_as_errors("STORE"):
            Look(settings_of(), summary).run()
    except ReindexError as error:
        raised, summary.exit, summary.error = error, error.exit_status, str(error)
    except KeyboardInterrupt as interrupt:
        raised, summary.exit, summary.error = interrupt, INTERRUPTED, "interrupted"
    summary.seconds = round(time.monotonic() - began, 3)
    return Ended(summary, raised, lines_of(summary))
