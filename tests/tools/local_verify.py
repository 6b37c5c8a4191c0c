"""A whole verify in this process, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Verify
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import ReindexError
from tests.tools.local_engine import InlineEngine, QuietReporter, single

OWN = ("only", "sample", "work", "against", "tables", "incremental", "recheck")


def local_verify(store: Path | str, engine: Engine | None = None, **settings: Any) -> VerifyResult:
    """The summary holds the exit status and the error, as the command line would say."""
    own = {name: settings.pop(name) for name in OWN if name in settings}
    named = frozenset((*SIZES, "broker_version")) & settings.keys()
    wanted = VerifySettings(str(store), named=named, **settings, **own)
    return run_verify(wanted, engine)


def run_verify(settings: VerifySettings, engine: Engine | None = None, reporter: Reporter | None = None) -> VerifyResult:
    """A verify by these settings."""
    job = Verify(settings.check(), reporter or QuietReporter(), single(engine or InlineEngine()))
    try:
        job.run()
    except ReindexError as error:
        job.result.exit, job.result.error = error.exit_status, str(error)
    return job.result


def kinds(summary: VerifyResult) -> dict[str, int]:
    """Count by kind."""
    return {finding["kind"]: finding["count"] for finding in summary.findings}
