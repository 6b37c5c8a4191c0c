"""The entry point of a Databricks wheel task: it runs the command line with the parameters of a job, which may be empty."""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.errors import ExitStatus, UsageError
from rocketmq_reindex.storage_format.showing import escape

DONE = (ExitStatus.DONE, ExitStatus.LOST)
"""exit statuses of a run that did what it was asked to: 3 is a build without the damaged parts of its log"""

VERIFY: Final = "verify:"
"""Before a parameter of the verify that comes after a build: what it would refuse is refused before the build"""


def words(given: Sequence[str]) -> list[str]:
    """Return the words of the command line that the parameters of a task stand for.

    ``--name=`` is left out: a job's parameter that is empty. ``options=TEXT`` is more words, split as a shell does. Raises
    UsageError where that cannot be split.
    """
    split: list[str] = []
    for word in given:
        if word.startswith("options="):
            text = word.removeprefix("options=")
            try:
                split += shlex.split(text)
            except ValueError as error:
                raise UsageError(f"options: {escape(text, 200)}: {str(error).lower()}: quote words as a shell does") from None
        elif not (word.startswith("--") and word.endswith("=")):
            split.append(word)
    return split


def check_verify(given: Sequence[str]) -> None:
    """Check the parameters of the verify that comes after a build: its ``--work`` has to be a folder of executors and driver.

    Raises UsageError for one that verify could not make.
    """
    place = ""
    verify_words = words(given)
    for word, after in zip(verify_words, [*verify_words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--work":
            place = value if equals else after
    if place and not files.no_rename(place) and not os.path.isdir(place):
        raise UsageError(
            f"--work {escape(place)}: the verify after this build cannot make it, since it is in no volume: name an --out in a "
            "volume (/Volumes/CATALOG/SCHEMA/VOLUME/...) or a URI, or a --work in verify_options: nothing was built"
        )


def task() -> None:
    """Return when the command has done its work, which is success there. Raises SystemExit with its status otherwise."""
    try:
        given = words([word for word in sys.argv[1:] if not word.startswith(VERIFY)])
        check_verify([word.removeprefix(VERIFY) for word in sys.argv[1:] if word.startswith(VERIFY)])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(UsageError.exit_status) from None
    status = main(given)
    if status not in DONE:
        raise SystemExit(status)
