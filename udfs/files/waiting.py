"""Tell whoever watches a run that a request to a store is being tried again, and how long that will take."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

Hears = Callable[[str], None]
"""Takes one line. It may be called from any thread, and raises nothing."""
SELDOM: Final = 5.0
"""Seconds between two lines of a process, however many requests wait."""

_listeners: list[Hears] = []
_lock = threading.Lock()
_last = [-SELDOM]


def _forget() -> None:
    # A fork has none of the threads that may hold the lock.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def heard_by(hears: Hears) -> Iterator[None]:
    """While this context is open, lines go to ``hears`` instead of a logger. Of several the last one hears."""
    _listeners.append(hears)
    try:
        yield
    finally:
        _listeners.remove(hears)


def tell(text: str) -> None:
    """Pass on one line: to who listens, else to a logger, which shows it on stderr. Of an executor that is its log."""
    if _listeners:
        _listeners[-1](text)
    else:
        logging.getLogger("rmq-reindex.files").warning("%s", text)


def say(text: str) -> None:
    """``tell`` one line, unless another one came less than SELDOM seconds before."""
    with _lock:
        now = time.monotonic()
        if now - _last[0] < SELDOM:
            return
        _last[0] = now
    tell(text)
