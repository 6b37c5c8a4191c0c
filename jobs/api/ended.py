"""What a run leaves to the command line and to the Python API, and how a command without an engine is run.

By itself: a command without an engine imports nothing of one with it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rocketmq_reindex.jobs.command.failures import Interrupts, outcome
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.storage_format.errors import ReindexError

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Ended(Generic[R]):
    """A run that has ended. ``result.error`` is None where it did what it was asked to; ``error`` is what was raised."""

    result: R
    error: BaseException | None
    interrupted: bool = False
    """whether a signal was seen, also where py4j made another error of it"""


_OWN: tuple[type[BaseException], ...] = (ReindexError, OSError, KeyboardInterrupt)
"""what ends a command that has no engine: all else is a fault of this package, and is shown with its trace"""


def run_here(
    result: R, work: Callable[[], list[str]], interrupts: Interrupts | None = None, place: str = "STORE", more: str = ""
) -> Ended[R]:
    """Run a command without an engine. ``work`` fills ``result``, and returns the lines for people.

    A failure is part of what is returned: ``place`` and ``more`` are those of ``outcome``.
    """
    timed: Any = result
    raised: BaseException | None = None
    lines, began = list[str](), time.monotonic()
    try:
        lines = work()
    except _OWN as error:
        raised = error
        result.exit, result.error = outcome(error, interrupts, place, more)
    timed.seconds = round(time.monotonic() - began, 3)
    result.end("\n".join(lines))
    return Ended(result, raised)
