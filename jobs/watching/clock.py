"""When the command began, so that what it says of its time is what a clock on the wall says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_marks: list[float] = []
"""at most one: set by the command line before it imports a command, taken by the command"""


@contextlib.contextmanager
def command() -> Iterator[None]:
    """A command begins here; its imports come next."""
    _marks[:] = [time.monotonic()]
    try:
        yield
    finally:
        _marks.clear()


def begun() -> float:
    """When the command began, in seconds of ``time.monotonic``: now, for one that is called as a function."""
    return _marks.pop() if _marks else time.monotonic()
