"""One run of fetch, as the command line and the Python API share it. A failure is part of what it returns.

By itself: the start of fetch imports nothing of another command.
"""

import time
from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.fetching.options import FetchSettings
from rocketmq_reindex.jobs.fetching.run import Fetch, FetchSummary
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.storage_format.names import escape


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchSummary]:
    """Fetch. ``settings_of`` may raise UsageError."""
    summary, lines = FetchSummary(), list[str]()
    raised: BaseException | None = None
    began = time.monotonic()
    try:
        settings = settings_of()
        with interrupts:
            lines = Fetch(settings, summary).run()
    except ReindexError as error:
        raised, summary.exit, summary.error = error, error.exit_status, str(error)
    except KeyboardInterrupt as interrupt:
        raised, summary.exit, summary.error = interrupt, interrupts.exit_status, "interrupted: run it again to go on"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "build or store"
        text = f"{where}: {escape(error.strerror or str(error))}: run it again to go on"
        raised, summary.exit, summary.error = error, 1, text
    summary.seconds = time.monotonic() - began
    return Ended(summary, raised, lines)
