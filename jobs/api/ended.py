"""What a run leaves to the command line and to the Python API, and how a command without an engine is run and shown."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rocketmq_reindex.jobs.command.failures import INTERRUPTED
from rocketmq_reindex.jobs.command.results import Output
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.storage_format.errors import ReindexError, error_lines
from rocketmq_reindex.storage_format.start.on_demand import OnDemand

S = TypeVar("S")


@dataclass(frozen=True)
class Ended(Generic[S]):
    """A run that has ended. ``summary.error`` is None where it did what it was asked to.

    ``error`` is what was raised, ``lines`` are what a person reads at the end.
    """

    summary: S
    error: BaseException | None
    lines: list[str]
    interrupted: bool = False
    """whether a signal was seen, also where py4j made another error of it"""


class Timed(Protocol):
    """A summary of a command that reads a store itself, without an engine."""

    seconds: float
    exit: int
    error: str | None


T = TypeVar("T", bound=Timed)


def run_here(summary: T, run: Callable[[], None], lines_of: Callable[[T], list[str]]) -> Ended[T]:
    """Run what fills ``summary``. A failure is part of what is returned; ``lines_of`` is asked at the end."""
    raised: BaseException | None = None
    began = time.monotonic()
    try:
        with failures_as_errors("STORE"):
            run()
    except ReindexError as error:
        raised, summary.exit, summary.error = error, error.exit_status, str(error)
    except KeyboardInterrupt as interrupt:
        raised, summary.exit, summary.error = interrupt, INTERRUPTED, "interrupted"
    summary.seconds = round(time.monotonic() - began, 3)
    return Ended(summary, raised, lines_of(summary))


def show(ended: Ended[Any], as_json: bool) -> int:
    """Print what such a command found, as lines or as one JSON object. Returns the exit status."""
    summary = ended.summary
    with Output():
        if as_json:
            sys.stdout.writelines(_json(summary))
        elif ended.lines:
            print("\n".join(ended.lines))
    if summary.error:
        print(error_lines(summary.error), file=sys.stderr)
    return int(summary.exit)


def _json(summary: Any) -> Iterator[str]:
    """A summary as one JSON object, in parts: a long list is not made as a whole."""
    for number, each in enumerate(dataclasses.fields(summary)):
        value = getattr(summary, each.name)
        yield f"{', ' if number else '{'}{json.dumps(each.name)}: "
        if isinstance(value, OnDemand):
            yield "["
            for at, member in enumerate(value):
                yield f"{', ' if at else ''}{json.dumps(member)}"
            yield "]"
        else:
            yield json.dumps(value, default=dataclasses.asdict)
    yield "}\n"
