"""What a command ends with: its result, how that is printed, and one line for whatever Spark or a task raised."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import html
import io
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, ClassVar, Final

from rocketmq_reindex.jobs.command.start import lacking
from rocketmq_reindex.storage_format.broker_start.listing import OnDemand
from rocketmq_reindex.storage_format.errors import ExitStatus, ReindexError, error_lines
from rocketmq_reindex.storage_format.showing import escape, reason
from rocketmq_reindex.udfs.worker.link import WorkerLostError


class Result:
    """What all results share. ``str()`` of a result is the text that the command prints.

    A command fills the fields of its result while it goes on. Once it has ended, none of them can be set.
    """

    exit: int = 0
    """the command's exit status"""
    error: str | None = None
    """why the command has not done what it was asked to; None where it has"""
    text: str = ""
    """what the command prints for people"""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """fields that are left out of the JSON object where they are None; they stand behind all others"""
    _ended = False

    def __setattr__(self, name: str, value: Any) -> None:
        if self._ended:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        # Spark takes no number of another class.
        super().__setattr__(name, int(value) if name == "exit" else value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def keep_lists(self) -> None:
        """Make lists of what is made on demand, and holds all that it is made of."""
        for name, value in vars(self).items():
            if isinstance(value, OnDemand):
                object.__setattr__(self, name, list(value))

    def end(self, text: str) -> None:
        """The command has ended, and prints this text."""
        self.text = text
        self._ended = True

    @property
    def exit_status(self) -> int:
        """What the command's exit status would be."""
        return self.exit

    @classmethod
    def json_keys(cls) -> list[str]:
        """Return the keys of the JSON object, in order."""
        names = [each.name for each in dataclasses.fields(cls) if each.name not in cls.OPTIONAL]  # type: ignore[arg-type]
        return [*names, *cls.OPTIONAL]

    def _keys(self) -> list[str]:
        return [name for name in self.json_keys() if name not in self.OPTIONAL or getattr(self, name) is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints with ``--json``, as plain dicts, lists, numbers and texts."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self._keys()}

    def json_parts(self) -> Iterator[str]:
        """Yield the JSON object in parts: a long list is not made as a whole."""
        for number, name in enumerate(self._keys()):
            value = getattr(self, name)
            yield f"{', ' if number else '{'}{json.dumps(name)}: "
            if isinstance(value, OnDemand):
                yield "["
                for at, member in enumerate(value):
                    yield f"{', ' if at else ''}{json.dumps(member)}"
                yield "]"
            else:
                yield json.dumps(value, default=dataclasses.asdict)
        yield "}"

    def to_json(self) -> str:
        """Return the object that the command prints with ``--json``."""
        return "".join(self.json_parts())

    def stderr_lines(self) -> list[str]:
        """Return what the command says on stderr at its end, as lines."""
        return [error_lines(self.error)] if self.error else []

    def _facts(self) -> dict[str, str]:
        """Return what a short form shows, by label."""
        return {}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts().items())
        return f"<{type(self).__name__} exit_status={self.exit_status}{', ' if facts else ''}{facts}>"

    def _repr_html_(self) -> str:
        """Return a short table, for notebooks."""
        facts = {"exit status": str(self.exit_status), **self._facts()}
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


class WarnedResult(Result):
    """A result with ``warnings`` among its fields, which the command says on stderr."""

    warnings: list[str]

    def stderr_lines(self) -> list[str]:
        """Return the warnings, and the error."""
        return [*(f"warning: {warning}" for warning in self.warnings), *super().stderr_lines()]


class OutputError(ReindexError):
    """Stdout could not be written. What the command did before it printed stays."""


class _Stdout(io.FileIO):
    """The file of stdout: an error names it, so that nobody takes it for one of a store."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"stdout: {error.strerror}: what was printed is not whole") from None


def named_stdout() -> None:
    """From now on stdout shows a character that its encoding lacks as an escape, and its errors are OutputError."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        return
    out.reconfigure(errors="backslashreplace")
    # Unbuffered (PYTHONUNBUFFERED) the file itself stands there.
    old: Any = getattr(out.buffer, "raw", out.buffer)
    if isinstance(old, io.FileIO) and not isinstance(old, _Stdout):
        out.flush()
        raw: Any = _Stdout(out.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            raw if old is out.buffer else io.BufferedWriter(raw), out.encoding, out.errors, line_buffering=out.line_buffering,
            write_through=out.write_through,
        )  # fmt: skip


def no_more_output() -> None:
    """Stdout cannot be written any more. From now on nothing is, also not when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Output:
    """What a command prints, while this lasts. An error of the package becomes its line on stderr, and ``status`` that of it.

    Where the reader of stdout has closed the pipe, the command has said enough: ``status`` stays what it is.
    """

    def __init__(self) -> None:
        self.status = 0
        """the exit status of the command"""

    def __enter__(self) -> Output:
        named_stdout()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        try:
            if error is None:
                sys.stdout.flush()
        except (BrokenPipeError, OutputError) as failed:
            error = failed
        if isinstance(error, ReindexError):
            print(error_lines(str(error)), file=sys.stderr)
            self.status = int(error.exit_status)
        elif not isinstance(error, BrokenPipeError):
            return False
        if isinstance(error, BrokenPipeError | OutputError):
            no_more_output()
        return True


def show(result: Result, as_json: bool, *, on_stderr: bool = True) -> int:
    """Print a result, as text or as one JSON object, and with ``on_stderr`` what is said there. Return the exit status."""
    with Output() as output:
        output.status = result.exit_status
        # Where nobody reads stderr any more stdout is still written.
        with contextlib.suppress(BrokenPipeError):
            for line in result.stderr_lines() if on_stderr else ():
                print(line, file=sys.stderr)
        if as_json:
            sys.stdout.writelines(result.json_parts())
            print()
        elif result.text:
            print(result.text)
    return output.status


# --------------------------------------------------------------------------------------------------------------------- failures
# How a run ends by a signal or an error.


JVM_GONE = "Spark's JVM is gone (killed, or out of memory)"

_CAUSE: Final = "Caused by: "
_RESULTS: Final = re.compile(r"Total size of serialized results of [^\n]* is bigger than (spark\.[\w.]+)[^\n]*")
"""what Spark says of a setting that a run is too large for, below words of its own (``TaskSetManager.canFetchMoreResults``)"""
_EMPTY_WORDS: Final = re.compile(r"Error while instantiating|: Job aborted\.?$", re.MULTILINE)
"""Spark's words that leave the reason to the cause"""
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 128 + signal.SIGINT
"""the exit status after ctrl-C, as shells have it"""


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP end a run, which then clears up behind itself.

    py4j turns what a handler raises into errors of its own, so a mark is left as well. A SIGHUP that is ignored when the run
    starts stays ignored: that is what nohup asks for.
    """

    def __init__(self, *, install: bool = True) -> None:
        """Without ``install``, for a run inside of somebody else's program, its own handler decides what SIGINT does.

        Only the mark is left before it acts: that of a SparkContext, called while py4j waits, ends in an error of py4j.
        """
        self.seen = False
        self.exit_status = int(INTERRUPTED)
        """128 and the number of the signal that was seen, as shells have it"""
        self._install, self._ending, self._disabled = install, False, logging.NOTSET
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self
        if self._install:
            heard = [n for n in ENDING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._mark) for number in heard}
        elif callable(handler := signal.getsignal(signal.SIGINT)) and not self._ending:
            self._before = {signal.SIGINT: handler}
            signal.signal(signal.SIGINT, self._mark_and_pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        if self.seen:
            logging.disable(self._disabled)

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """While the end of a run is reported: nothing is left for a signal to end, and the report has to be whole."""
        self._ending = True
        with self:
            yield

    def _mark(self, number: int, _frame: FrameType | None) -> None:
        # A terminal that goes and its shell both send SIGHUP: the second must not cut the clearing up short.
        if self._ending or (self.seen and number == signal.SIGHUP):
            return
        self._note()
        self.exit_status = 128 + number
        raise KeyboardInterrupt

    def _mark_and_pass_on(self, number: int, frame: FrameType | None) -> None:
        self._note()
        self._before[number](number, frame)
        # It has raised nothing: the run goes on.
        self.seen = False
        logging.disable(self._disabled)

    def _note(self) -> None:
        if not self.seen:
            self.seen, self._disabled = True, logging.root.manager.disable
        # What py4j logs of a call that was cut short helps nobody.
        logging.disable(logging.CRITICAL)


PLACE, UNPUBLISHED = "input or output", ": nothing was published"
"""what the line of a build says"""


def outcome(
    error: BaseException, interrupts: Interrupts | None, place: str, more: str = "", *, has_jvm: bool = True
) -> tuple[int, str]:
    """Return the exit status of an error, and its line. Errors of Spark and of tasks come here as well.

    ``place`` stands for a file without a name, ``more`` is the end of the line. ``has_jvm``: the command may work with Spark's
    JVM.
    """
    if was_interrupted(error) or (interrupts is not None and interrupts.seen):
        return interrupts.exit_status if interrupts else int(INTERRUPTED), f"interrupted{more}"
    if isinstance(error, ReindexError):
        return error.exit_status, str(error)
    if isinstance(error, WorkerLostError):
        return ExitStatus.FAILED, f"{error}{more}"
    if isinstance(error, ImportError):
        return ExitStatus.FAILED, f"{lacking(error)}{more}"
    if isinstance(error, ConnectionError) and not error.filename and has_jvm and "py4j" in sys.modules:
        # A file's error, on a mounted share for one, has its name.
        return ExitStatus.FAILED, f"{JVM_GONE}{more}"
    if isinstance(error, OSError):
        where = escape(str(error.filename)) if error.filename else place
        return ExitStatus.FAILED, f"{where}: {reason(error)}{more}"
    return ExitStatus.FAILED, _one_line(error, more)


def was_interrupted(error: BaseException) -> bool:
    """Return whether a KeyboardInterrupt is an error or its cause: py4j raises an error of its own for it.

    Errors may be each other's cause in a ring: PySpark 4.2 raises the error of a failed call that way.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(isinstance(one, KeyboardInterrupt) for one in chain)


def _trace(error: BaseException) -> str:
    """Return the text of an error, and Java's trace with it."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def innermost(error: BaseException) -> str:
    """Return the innermost cause of an error of Java's, ``CLASS: MESSAGE``; "" where there is none.

    Java's trace names that one last (``Throwable.printStackTrace``): py4j has the trace in the error's text, pyspark in
    ``CapturedException._stackTrace``.
    """
    lines = _trace(error).splitlines()
    return next((line.removeprefix(_CAUSE) for line in reversed(lines) if line.startswith(_CAUSE)), "")


def _reason(error: BaseException) -> str:
    """Return the text of an error; where Spark's own words are empty, that of the innermost cause, as of a wrong setting."""
    text = str(error)
    return innermost(error).partition(": ")[2] or text if _EMPTY_WORDS.search(text) else text


def _one_line(error: BaseException, ending: str) -> str:
    """Return the cause of a failed task: the last line of its Python traceback where there is one."""
    if match := _RESULTS.search(_trace(error)):
        return f"{match[1]} is too small: {escape(match[0], 600)}{ending}"
    lines = [line.strip() for line in _reason(error).splitlines() if line.strip()]
    for line in lines:
        for kind in ("InputError: ", "OSError: ", "FileNotFoundError: ", "PermissionError: "):
            if kind in line:
                return escape(line.partition(kind)[2] or line, 600)
    # py4j's own words for a call that was sent and has no answer: where Java answers with an error they go on with its trace.
    kind, unanswered = type(error).__name__, len(lines) == 1 and lines[0].startswith("An error occurred while calling")
    if kind == "Py4JNetworkError" or (kind == "Py4JError" and unanswered):
        return f"{JVM_GONE}{ending}"
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.apache"))]
    # A task that did not end by a Python error: the last cause that Spark names.
    aborted = [line.rpartition("Exception: ")[2] for line in lines if "Job aborted" in line and "Exception: " in line]
    named = named or aborted
    return f"{type(error).__name__}: {escape((named or lines or ['no message'])[0], 600)}{ending}"
