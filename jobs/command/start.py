"""What a command has before it imports anything: when it began, which Python this is, and what that lacks.

By itself: each command imports it first, and a Python that lacks packages gets as far as this file.
"""

import contextlib
import platform
import sys
import time
from collections.abc import Iterator
from typing import Final

PLACES: Final = (
    "install the wheel in it with pip, or take a Python that has it: PYSPARK_PYTHON, and PYSPARK_DRIVER_PYTHON for the driver "
    "(with dist/ both are its rmq_python)"
)
"""what to do about a Python that lacks packages"""


def this_python() -> str:
    """Return how messages name this Python: its file, its version, its host."""
    return f"{sys.executable} (Python {platform.python_version()} on {platform.node()})"


def lacking(error: ImportError) -> str:
    """Return the line of a command whose own Python lacks a package, or has one made for another Python."""
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package:
        return f"{this_python()} lacks {package}: {PLACES}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f" ({lines[-1]})" if lines else ""
    return f"{this_python()} cannot load {package or 'a package'}{reason}: {PLACES}"


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
