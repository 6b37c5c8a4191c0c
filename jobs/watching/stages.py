"""Show how far a command without an engine is, once it takes longer than a moment."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from rocketmq_reindex.jobs.watching import compiling

_SILENT: Final = 1.0
"""seconds: most stores are done by then"""


class Stages:
    """A ``storage_format.errors.ProgressListener``, as a context manager. With ``quiet`` nothing is shown."""

    def __init__(self, quiet: bool, loop: str, loops: Mapping[str, str] | None = None) -> None:
        """``loop``: the record loop that the stages run, which may have to be compiled (``watching.compiling``).

        ``loops``: that of a stage that runs another one, "" for none.
        """
        self._quiet, self._loop, self._loops, self._begun = quiet, loop, loops or {}, time.monotonic()
        self._compiles = not quiet
        self._name, self._size, self._done, self._shown = "", 0, 0, False
        self._stage = contextlib.ExitStack()

    def begin(self, stage: str, size: int) -> None:
        """A stage begins that reads at most ``size`` bytes."""
        self.end()
        loop = self._loops.get(stage, self._loop)
        if size and loop and self._compiles:
            if text := compiling.line(loop):
                print(text, file=sys.stderr, flush=True)
            self._compiles = False
        self._name, self._size, self._done, self._shown = stage, size, 0, False

    def moved(self, size: int) -> None:
        """So many bytes more of the stage are done."""
        self._done += size
        if self._shown or self._quiet or self._done >= self._size or time.monotonic() - self._begun < _SILENT:
            return
        self._shown = True
        # rich takes a moment to import.
        from rocketmq_reindex.jobs.watching.progress import Reporter
        from rocketmq_reindex.jobs.watching.progress_shown import usual

        # A bar of its own: an open one takes what is printed on stdout to stderr.
        reporter = self._stage.enter_context(Reporter([usual()]))
        self._stage.enter_context(reporter.stage(self._name, "MiB", -(-self._size // (1 << 20)), self._size, self._probe))

    def end(self) -> None:
        """The stage is over: what is printed next stands below it."""
        self._stage.close()
        self._size = 0

    def _probe(self) -> tuple[int, float]:
        return self._done >> 20, self._done / self._size

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stage.__exit__(kind, error, trace)
