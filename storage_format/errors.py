"""The errors that end a run, and the listener to which a run says how far it is."""

from enum import IntEnum
from typing import Protocol

# ----------------------------------------------------------------------------------------------------------------------- errors
# The errors that end a run. Each says what is wrong, where (file and offset), and what to do: in one line, or with further
# lines that begin with blanks.
#
# A UsageError has a line for each word of a command that is wrong.


def errors_of(text: str) -> list[str]:
    """Return the errors in a text: each line is one, with the lines behind it that begin with blanks."""
    errors = list[str]()
    for line in text.split("\n"):
        if errors and line.startswith("  "):
            errors[-1] += f"\n{line}"
        else:
            errors.append(line)
    return errors


def error_lines(text: str) -> str:
    """Return the text of an error as it is printed: two wrong options are two errors."""
    return "\n".join(f"error: {error}" for error in errors_of(text))


class ExitStatus(IntEnum):
    """With what a command ends, if no signal ends it. It is shown as its number."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    LOST = 3
    """done, and records are lost"""
    FOUND = 4
    """differences, or what a start would lose or hide"""
    REFUSED = 5

    __repr__ = int.__repr__
    __str__ = int.__repr__


class ReindexError(Exception):
    """The run failed, and nothing was published (exit status 1)."""

    exit_status = ExitStatus.FAILED
    """what the command's exit status would be"""
    result: object | None = None
    """in the Python API: what was found before the error, as the function's result"""


class UsageError(ReindexError):
    """The arguments are wrong, which shows without reading any file (exit status 2)."""

    exit_status = ExitStatus.USAGE


class InputError(ReindexError):
    """The input, or the folder for the output, cannot be used as it is (exit status 1)."""


class RefusedError(ReindexError):
    """The chosen policy refuses damage or the order of a queue (exit status 5). The same input is refused again."""

    exit_status = ExitStatus.REFUSED


# ----------------------------------------------------------------------------------------------------------- progress listeners
# Long work of one process says to a listener how far it is.


class ProgressListener(Protocol):
    """A listener to the progress of work."""

    def begin(self, stage: str, size: int) -> None:
        """A stage begins that reads at most ``size`` bytes."""

    def moved(self, size: int) -> None:
        """So many bytes more of the stage are done."""

    def end(self) -> None:
        """The stage is over: what is printed next stands below it."""


class NoListener:
    """A listener that shows nothing."""

    def begin(self, stage: str, size: int) -> None:
        pass

    def moved(self, size: int) -> None:
        pass

    def end(self) -> None:
        pass
