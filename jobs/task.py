"""The entry point of a Databricks wheel task: it runs the command line with the parameters of a job, which may be empty."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape

DONE = (0, 3)
"""exit statuses of a run that did what it was asked to: 3 is a build without the damaged parts of its log"""


def words(given: Sequence[str]) -> list[str]:
    """Return the words of the command line that the parameters of a task stand for.

    ``--name=`` is left out: a job's parameter that is empty. ``options=TEXT`` is more words, split as a shell does. Raises
    UsageError where that cannot be split.
    """
    found: list[str] = []
    for word in given:
        if word.startswith("options="):
            text = word.removeprefix("options=")
            try:
                found += shlex.split(text)
            except ValueError as error:
                raise UsageError(f"options: {escape(text, 200)}: {str(error).lower()}: quote words as a shell does") from None
        elif not (word.startswith("--") and word.endswith("=")):
            found.append(word)
    return found


def task() -> None:
    """Return when the command has done its work, which is success there. Raises SystemExit with its status otherwise."""
    try:
        given = words(sys.argv[1:])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(UsageError.exit_status) from None
    status = main(given)
    if status not in DONE:
        raise SystemExit(status)
