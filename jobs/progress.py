"""Progress on stderr: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

INTERVAL = 0.5
LINE_INTERVAL = 5.0

Probe = Callable[[], tuple[int, int]]
"""How far a stage is: (things done, bytes done)."""


class Reporter:
    """Shows one stage after another; a stage polls its probe from a thread of its own."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[done]}"),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )

    def __enter__(self) -> Reporter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def line(self, text: str) -> None:
        """One line of plain text, above the bar when there is one."""
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def stage(self, name: str, things: str, total: int, total_bytes: int, probe: Probe) -> Stage:
        """A context in which the stage's progress is shown."""
        return Stage(self, name, things, total, total_bytes, probe)


class Stage:
    """One stage of a run: ``total`` things of ``total_bytes`` bytes."""

    def __init__(self, reporter: Reporter, name: str, things: str, total: int, total_bytes: int, probe: Probe) -> None:
        self._reporter, self._name, self._things = reporter, name, things
        self._total, self._total_bytes, self._probe = total, total_bytes, probe
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"progress-{name}", daemon=True)

    def __enter__(self) -> Stage:
        self._begin = time.monotonic()
        bar = self._reporter._bar
        if bar:
            self._task = bar.add_task(self._name, total=self._total_bytes or 1, done=f"0/{self._total} {self._things}")
        else:
            size = f", {self._total_bytes:,} bytes" if self._total_bytes else ""
            self._reporter.line(f"{self._name}: {self._total} {self._things}{size}")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        seconds = time.monotonic() - self._begin
        bar = self._reporter._bar
        if bar:
            done = "failed" if kind else f"{self._total}/{self._total} {self._things}"
            bar.update(self._task, done=done, completed=None if kind else (self._total_bytes or 1))
        else:
            self._reporter.line(f"{self._name}: {'failed' if kind else 'done'} after {seconds:.1f} s")

    def _watch(self) -> None:
        last_line = time.monotonic()
        while not self._done.wait(INTERVAL):
            try:
                things, size = self._probe()
            except OSError:
                continue
            bar = self._reporter._bar
            if bar:
                bar.update(self._task, completed=size, done=f"{things}/{self._total} {self._things}")
            elif time.monotonic() - last_line >= LINE_INTERVAL:
                last_line = time.monotonic()
                self._reporter.line(self._plain(things, size))

    def _plain(self, things: int, size: int) -> str:
        if not self._total_bytes:
            return f"{self._name}: {things}/{self._total} {self._things}"
        rate = size / (time.monotonic() - self._begin)
        left = f", {(self._total_bytes - size) / rate:.0f} s left" if rate and self._total_bytes >= size else ""
        return f"{self._name}: {things}/{self._total} {self._things}, {size:,} bytes, {rate / 1e6:.0f} MB/s{left}"
