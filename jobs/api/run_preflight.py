"""One preflight, as the command line and the Python API share it. A failure is part of what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketmq_reindex.jobs.api.ended import Ended
from rocketmq_reindex.jobs.api.failing import failures_as_errors
from rocketmq_reindex.jobs.command.failures import INTERRUPTED
from rocketmq_reindex.jobs.preflighting.run import Preflight
from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.preflighting.show import lines_of
from rocketmq_reindex.jobs.preflighting.summary import PreflightSummary
from rocketmq_reindex.jobs.watching import compiling
from rocketmq_reindex.jobs.watching.stages import Stages
from rocketmq_reindex.storage_format.errors import ReindexError


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightSummary]:
    """Work out a start. ``settings_of`` may raise UsageError and InputError. ``quiet``: no progress is shown on stderr."""
    summary = PreflightSummary()
    raised: BaseException | None = None
    began = time.monotonic()
    try:
        with failures_as_errors("STORE"), Stages(quiet, compiling.START) as told:
            Preflight(settings_of(), summary, told).run()
    except ReindexError as error:
        raised, summary.exit, summary.error = error, error.exit_status, str(error)
    except KeyboardInterrupt as interrupt:
        raised, summary.exit, summary.error = interrupt, INTERRUPTED, "interrupted"
    summary.seconds = round(time.monotonic() - began, 3)
    return Ended(summary, raised, lines_of(summary))
