"""What a command ends with: its result, and how that is printed."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import html
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

from rocketmq_reindex.storage_format.broker_start.on_demand import OnDemand
from rocketmq_reindex.storage_format.errors import ReindexError, error_lines


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
