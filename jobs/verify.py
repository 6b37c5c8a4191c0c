"""``rmq-reindex verify``, and the entry for spark-submit: ``spark-submit ... jobs/verify.py STORE ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from jobs.failures import Interrupts, one_line
from jobs.verify_options import parse_verify
from jobs.verify_settings import VerifySettings
from jobs.verify_summary import VerifySummary
from storage_format.errors import ReindexError
from storage_format.names import escape

_PUBLISHED = ": nothing was published"


def verify(arguments: Sequence[str]) -> int:
    """One verify; returns the exit status: 0 clean, 4 differences, 1 an error, 2 wrong usage."""
    summary, interrupts = VerifySummary(), Interrupts()
    settings: VerifySettings | None = None
    try:
        settings = parse_verify(arguments)
        from jobs.engine import SparkEngines
        from jobs.progress import Reporter
        from jobs.verify_against import Against
        from jobs.verify_run import Verify

        with interrupts, Reporter() as reporter:
            engines = SparkEngines(settings.build.master)
            job = Against(settings, reporter, engines) if settings.against else Verify(settings, reporter, engines)
            summary = job.summary
            job.run()
            if settings.report:
                _write_report(settings.report, summary)
    except ReindexError as error:
        summary.exit, summary.error = error.exit_status, str(error)
    except KeyboardInterrupt:
        summary.exit, summary.error = 1, "interrupted"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "input"
        summary.exit, summary.error = 1, f"{where}: {error.strerror or escape(str(error))}"
    except Exception as error:  # noqa: BLE001  whatever Spark or a task raises: one line
        summary.exit, summary.error = 1, one_line(error).replace(_PUBLISHED, "")
    if interrupts.seen and summary.error:
        summary.exit, summary.error = 1, "interrupted"
    if summary.error:
        print(f"error: {summary.error}", file=sys.stderr)
    if "--json" in arguments:
        print(summary.to_json())
    elif not summary.error:
        print(summary.to_text())
    return summary.exit


def _write_report(path: str, summary: VerifySummary) -> None:
    """The summary beside its place, then under its name: never half of it."""
    aside = f"{path}.{os.getpid()}"
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(summary.to_json() + "\n")
        os.replace(aside, path)
    except BaseException:
        if os.path.lexists(aside):
            os.unlink(aside)
        raise


if __name__ == "__main__":
    sys.exit(verify(sys.argv[1:]))
