"""Seconds and memory of each step of a driver: functions of ours are watched by name while a build runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.005


def own_memory(process: int | str = "self") -> int:
    """Bytes of memory of its own that a process has now; mapped files, which are the page cache's, do not count."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    # A process that has ended and not been asked for its status has none.
    return int((status.partition("RssAnon:")[2].split() or ["0"])[0]) * 1024


@dataclass
class Steps:
    """``seconds`` of each step in the order of their first call, and the most memory while it ran.

    What an engine does stands for other processes: ``elsewhere`` is taken off. ``clock`` gives the seconds.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    outside: float = 0.0
    clock: Callable[[], float] = time.perf_counter
    _running: list[str] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        begin = self.clock()
        try:
            yield
        finally:
            self.outside += self.clock() - begin

    def watch(self, owner: Any, name: str, label: str) -> None:
        """Count the calls of ``owner.name`` under ``label``."""
        plain = getattr(owner, name)

        @wraps(plain)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._running.append(label)
            before, begin = self.outside, self.clock()
            try:
                return plain(*args, **kwargs)
            finally:
                took = self.clock() - begin - (self.outside - before)
                self.seconds[label] = self.seconds.get(label, 0.0) + took
                self._see()
                self._running.pop()

        setattr(owner, name, counted)
        self._undo.append(lambda: setattr(owner, name, plain))

    def _see(self) -> None:
        now = own_memory()
        for label in list(self._running):
            self.memory[label] = max(self.memory.get(label, 0), now)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Look at the memory all the time; afterwards the watched functions are as they were."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(SAMPLE_SECONDS):
                self._see()

        thread = threading.Thread(target=look, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            while self._undo:
                self._undo.pop()()
