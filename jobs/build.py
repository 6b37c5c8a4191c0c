"""``rmq-reindex build``, and the entry for spark-submit: ``spark-submit ... jobs/build.py STORE --out DIR ...``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import output
from jobs.build_options import parse_settings
from jobs.failures import JVM_GONE, Interrupts, one_line
from jobs.segments import list_segments
from jobs.summary import WARNING_LINES_MAX, Summary
from storage_format.errors import ReindexError
from storage_format.names import escape

if TYPE_CHECKING:
    from jobs.run import Build


def build(arguments: Sequence[str]) -> int:
    """One build; returns the exit status."""
    summary, text = Summary(), ""
    interrupts = Interrupts()
    job: Build | None = None
    try:
        settings = parse_settings(arguments)
        with interrupts:
            # A wrong path is told before a JVM is started.
            output.check_places(list(settings.inputs), settings.out, settings.overwrite)
            list_segments(settings.roots, settings.segment_size)
            from jobs.session import starting

            # An incremental build asks for Spark when it has found something to do.
            with contextlib.nullcontext() if settings.dry_run or settings.incremental else starting(settings.master):
                # numba alone takes a second, and the JVM starts meanwhile.
                from jobs.engine import SparkEngines
                from jobs.progress import Reporter
                from jobs.run import Build

                with Reporter() as reporter:
                    job = Build(settings, reporter, SparkEngines(settings.master))
                    summary = job.summary
                    job.run()
        text = "" if settings.dry_run else summary.to_text()
    except ReindexError as error:
        summary.exit, summary.error = error.exit_status, str(error)
    except KeyboardInterrupt:
        summary.exit, summary.error = 1, "interrupted: nothing was published"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "input or output"
        summary.exit, summary.error = 1, f"{where}: {error.strerror or escape(str(error))}: nothing was published"
        if isinstance(error, ConnectionError) and not error.filename:
            # A file's error, on a mounted share for one, has its name.
            summary.error = JVM_GONE
    except Exception as error:  # noqa: BLE001  whatever Spark or a task raises: one line, nothing published
        summary.exit, summary.error = 1, one_line(error)
    if interrupts.seen and summary.error:
        summary.exit, summary.error = 1, "interrupted: nothing was published"
    if job is not None and job.published and summary.error:
        # What went wrong after the rename takes nothing back.
        summary.warnings.append(f"published all the same: {summary.error.removesuffix(': nothing was published')}")
        summary.exit, summary.error = 3 if summary.lost else 0, None
    for warning in summary.warnings[:WARNING_LINES_MAX]:
        print(f"warning: {warning}", file=sys.stderr)
    if len(summary.warnings) > WARNING_LINES_MAX:
        print(f"warning: {len(summary.warnings) - WARNING_LINES_MAX} more, see the summary", file=sys.stderr)
    if summary.error:
        print(f"error: {summary.error}", file=sys.stderr)
    if "--json" in arguments:
        print(summary.to_json())
    elif text and not summary.error:
        print(text)
    return summary.exit


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
