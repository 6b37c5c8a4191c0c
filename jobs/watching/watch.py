"""What a run reports while it goes on and at its end: on stderr, as text or as JSON, and in a file of metrics.

It says, too, when record loops are compiled first, and uses a temporary folder where no other can keep them. What nobody asks
for is not imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from rocketmq_reindex.files import object_store
from rocketmq_reindex.jobs.command.option import Engine, Progress
from rocketmq_reindex.jobs.command.start import command_begin
from rocketmq_reindex.storage_format.errors import error_lines, errors_of
from rocketmq_reindex.storage_format.kernels import cache_folder
from rocketmq_reindex.storage_format.showing import escape, reason
from rocketmq_reindex.version import __version__

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.watching.logs import Figures, JsonLog, Value
    from rocketmq_reindex.jobs.watching.progress import Reporter, Shown

    class RunResult(Figures, Protocol):
        """What the results of build, verify and repair share."""

        error: str | None

        def warn(self, text: str) -> None: ...

        def events(self) -> Iterable[tuple[str, str, dict[str, Value]]]: ...

        def counts(self) -> dict[str, int]: ...


# -------------------------------------------------------------------------------------------------------------------- compiling
# Say that a run begins by compiling its record loops, which nothing else shows: once for each version and machine.

SCAN_LOOP: Final = "loop.walk"
"""the largest loop of a scan: build, verify, repair, query --scan, inspect"""
START_LOOP: Final = "record_loop.broker_record"
"""the loop that reads a record as a broker does that starts: preflight"""
INDEX_LOOP: Final = "index._check_items"
"""the largest loop of the check of an IndexFile: inspect"""


def compiling_line(loop: str) -> str:
    """Return the line that says that ``loop`` is compiled first; "" where it is there, or is not compiled at all.

    Raises InputError where others may write to the folder that the environment names.
    """
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    if plain or cache_folder.holds(loop) or cache_folder.is_carried(loop):
        return ""
    return "compiling the record loops, once (some 25 s)"


def runs_here(engine: str, master: str) -> bool:
    """Return whether all tasks run on this machine, as far as is known before Spark is there."""
    if engine == "local":
        return True
    # Somebody else's session may be there, and its executors are elsewhere.
    return "pyspark" not in sys.modules and "PYSPARK_GATEWAY_PORT" not in os.environ and (master or "local").startswith("local")


# ---------------------------------------------------------------------------------------------------------------------- kernels
# Compiled record loops for a run that has no folder to keep them in: compiled once, in a folder of its own.

COMPILING_NOTE: Final = (
    "no folder keeps the compiled record loops: they were compiled for this run alone: "
    f"name a folder of your own in {cache_folder.VARIABLE}"
)


@contextlib.contextmanager
def loops_kept() -> Iterator[bool]:
    """Have a folder for compiled loops, for the driver and the workers of a local session, while this context is open.

    Yield whether they are compiled for this run alone: there is no other folder, and they do not come with the package.

    Raises InputError where others may write to the folder that the environment names.
    """
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    # Once the module ``jit`` is imported it has chosen its folder.
    if plain or "rocketmq_reindex.storage_format.kernels.jit" in sys.modules or cache_folder.find():
        yield False
        return
    before = os.environ.get(cache_folder.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-compiled-", ignore_cleanup_errors=True) as folder:
        os.environ[cache_folder.VARIABLE] = folder
        try:
            yield not cache_folder.is_carried(SCAN_LOOP)
        finally:
            os.environ.pop(cache_folder.VARIABLE)
            if before is not None:
                os.environ[cache_folder.VARIABLE] = before


# ------------------------------------------------------------------------------------------------------------------------ watch


JVM_LOGGER: Final = "rmq-reindex.jvm"
"""Gets the lines that the JVM writes to stderr, while it has a handler (``gateway.JvmErrors``)"""


@dataclass(frozen=True)
class WatchedRun:
    """What the settings of a run say of the run itself. ``store``, ``out`` and ``metrics`` are paths as they were given."""

    store: str = ""
    out: str | None = None
    """DIR, of a build"""
    metrics: str = ""
    """the file of metrics; empty for none"""
    progress: Progress = "lines"
    engine: Engine = "spark"
    master: str = ""


class Watch:
    """One run of a command. ``json_log``: its messages are JSON objects. ``quiet``: nothing is printed on stderr."""

    def __init__(self, command: str, *, json_log: bool = False, quiet: bool = False) -> None:
        self._command, self._quiet, self._run = command, quiet, WatchedRun()
        self._log: JsonLog | None = None
        self._reporter: Reporter | None = None
        self._begin = command_begin()
        self._listening = contextlib.ExitStack()
        # An earlier run of this process may have had a log.
        logging.getLogger(JVM_LOGGER).handlers.clear()
        if json_log:
            from rocketmq_reindex.jobs.watching.logs import JsonLog

            self._log = JsonLog(build=uuid.uuid4().hex, command=command)
            self._log.take(JVM_LOGGER, "jvm")

    def start(self, run: WatchedRun) -> None:
        """The settings are known, and the run starts."""
        self._run = run
        self._listening.enter_context(object_store.heard_by(self._waits))
        if self._log:
            known: dict[str, Value] = {"version": __version__, "store": self._store, "out": self._out}
            self._log.event("run-begun", f"{self._command}: begun", known)

    def _waits(self, text: str) -> None:
        """A store is waited for, perhaps before the first stage."""
        if self._reporter:
            self._reporter.waits(text)
        elif self._log:
            self._log.waits(text)
        elif self._run.progress == "json" and not self._quiet:
            from rocketmq_reindex.jobs.watching.logs import JsonLines

            JsonLines().waits(text)
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def compiles(self) -> None:
        """Say that the record loops are compiled first, where they are, on this machine."""
        if not self._quiet and runs_here(self._run.engine, self._run.master):
            self.says(compiling_line(SCAN_LOOP))

    def says(self, text: str) -> None:
        """Say a line on stderr, before the first stage; "" is none."""
        if self._log and text:
            self._log.line(text)
        elif text and not self._quiet and self._run.progress != "json":
            print(text, file=sys.stderr, flush=True)

    @property
    def _store(self) -> str:
        return escape(self._run.store)

    @property
    def _out(self) -> str | None:
        return None if self._run.out is None else escape(self._run.out)

    def reporter(self) -> Reporter:
        """Yield a reporter that shows the stages as asked for."""
        from rocketmq_reindex.jobs.watching.progress import Reporter

        shown: list[Shown] = [self._log] if self._log else []
        if self._run.progress == "json" and not self._quiet:
            from rocketmq_reindex.jobs.watching.logs import JsonLines

            shown.append(JsonLines())
        elif not self._log and not self._quiet:
            from rocketmq_reindex.jobs.watching.progress_shown import usual

            shown.append(usual())
        self._reporter = Reporter(shown)
        self._reporter.begin = self._begin
        return self._reporter

    def stop_clock(self, result: RunResult) -> None:
        """The work is done: note how long all of it took."""
        result.seconds["total"] = time.monotonic() - self._begin

    def end(self, result: RunResult, *, lines: bool = False, published: bool = False) -> None:
        """Report the end of the run. ``lines``: warnings are lines on stderr, if they are not logged."""
        self._listening.close()
        trouble = self._write_metrics(result) if self._run.metrics else ""
        if trouble:
            result.warn(trouble)
        if self._log:
            self._log_end(self._log, result, published)
            return
        if self._quiet:
            return
        warnings = [text for _, text, _ in result.events()] if lines else [trouble] if trouble else []
        for text in warnings:
            print(f"warning: {text}", file=sys.stderr)
        if result.error:
            print(error_lines(result.error), file=sys.stderr)

    def _log_end(self, log: JsonLog, result: RunResult, published: bool) -> None:
        for event, text, context in result.events():
            log.event(event, text, context, logging.INFO if event == "note" else logging.WARNING)
        for error in errors_of(result.error) if result.error else ():
            log.event("error", " ".join(line.strip() for line in error.split("\n")), {"exit": result.exit}, logging.ERROR)
        if published:
            log.event("published", f"published {self._out}", {"out": self._out})
        figures: dict[str, Value] = {
            "exit": result.exit,
            **{f"seconds_{stage}": round(seconds, 3) for stage, seconds in result.seconds.items()},
            "bytes": result.bytes,
            "records": result.records,
            "units": result.units,
            "items": result.items,
            **{f"{kind}_files": number for kind, number in result.files.items()},
            **result.counts(),
        }
        log.event("run-ended", f"{self._command}: ended with status {result.exit}", figures)

    def _write_metrics(self, result: RunResult) -> str:
        """Write the figures. Return what kept them from being written, or nothing."""
        path = self._run.metrics
        try:
            from rocketmq_reindex.jobs.watching.logs import write_metrics
            from rocketmq_reindex.jobs.watching.progress import StageSeconds

            seconds = self._reporter.seconds if self._reporter else StageSeconds()
            write_metrics(path, {"command": self._command, "store": self._store}, result, seconds, result.counts())
        except Exception as error:  # noqa: BLE001  the run itself went as it went
            return f"--metrics {escape(path)}: not written: {reason(error)}"
        return ""


# ----------------------------------------------------------------------------------------------------------------------- stages
# How far a command without an engine is, once it takes longer than a moment.


_SILENT: Final = 1.0
"""seconds: most stores are done by then"""


class Stages:
    """A ``storage_format.errors.ProgressListener``, as a context manager. With ``quiet`` nothing is shown."""

    def __init__(self, quiet: bool, loop: str, loops: Mapping[str, str] | None = None) -> None:
        """``loop``: the record loop that the stages run, which may have to be compiled (``watching.watch``).

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
            if text := compiling_line(loop):
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
        self._stage.enter_context(reporter.stage(self._name, "bytes", self._size, 0, self._probe))

    def end(self) -> None:
        """The stage is over: what is printed next stands below it."""
        self._stage.close()
        self._size = 0

    def _probe(self) -> tuple[int, float]:
        return self._done, self._done / self._size

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stage.__exit__(kind, error, trace)
