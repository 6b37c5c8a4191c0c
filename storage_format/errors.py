"""The few errors that end a run. Each is one line: what, where (file and offset), what to do."""

from __future__ import annotations


class ReindexError(Exception):
    """An error, nothing published (exit status 1)."""

    exit_status = 1
    """what the command's exit status would be"""
    result: object | None = None
    """in the Python API: what was found before the error, as the function's result"""


class UsageError(ReindexError):
    """Wrong usage, seen from the arguments alone (exit status 2)."""

    exit_status = 2


class InputError(ReindexError):
    """The input, or the place for the output, cannot be used as it is (exit status 1)."""


class RefusedError(ReindexError):
    """Damage or queue order that the chosen policy refuses (exit status 5): the same input is refused again."""

    exit_status = 5
