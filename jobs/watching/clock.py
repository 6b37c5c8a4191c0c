"""The time at which the command began, so that its seconds include the start of Python.

By itself: each command imports it first.
"""

import contextlib
import time
from collections.abc import Iterator

_marks: list[float] = []
"""at most one: set by the command line before it imports a command, taken by the command"""


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Mark the begin of a command; its imports come next."""
    _marks[:] = [time.monotonic()]
    try:
        yield
    finally:
        _marks.clear()


def command_begin() -> float:
    """Return when the command began, in seconds of ``time.monotonic``. For one that is called as a function that is now."""
    return _marks.pop() if _marks else time.monotonic()
