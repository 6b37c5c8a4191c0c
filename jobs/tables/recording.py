"""The recorder of a run. Only a run with ``--tables`` imports what writes its rows.

By itself: a run without ``--tables`` imports this file alone.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from rocketmq_reindex.jobs.building import scanning, settings as building_settings, summary as building_summary
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs.scan.segments import Commitlog

# -------------------------------------------------------------------------------------------------------------------- recording
# What a build passes to the recorder of its run.


class Unrecorded:
    """Records nothing. ``jobs.tables`` overrides these methods to write the rows of the run."""

    has_rows = False
    """whether a published build gets rows"""

    def recording(
        self, manifest: str, published: Callable[[], bool], complete: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Return a context for the whole run; its end records the outcome.

        ``manifest`` is the path of the manifest once ``published()`` is true; ``complete`` is called when all rows are written.
        """
        _ = manifest, published, complete
        return contextlib.nullcontext()

    def check(self) -> None:
        """Look, just before publishing, whether this run is still the one that is recorded. Raises InputError if not."""

    def built_from(self, scan: scanning.Scan, accepted: list[RangeSummary], until: int) -> None:
        """The build is made from these ranges of the log, which was read up to the offset ``until``."""


# -------------------------------------------------------------------------------------------------------------------- recording
# Who records a run. Only a run with ``--tables`` imports what writes them.


def recorder_of(
    settings: building_settings.BuildSettings,
    summary: building_summary.Summary,
    reporter: Reporter,
    engine: Engine,
    log: Commitlog,
) -> Unrecorded:
    """Return what records a run in the Delta tables of ``--tables``, or what records nothing."""
    if not settings.tables:
        return Unrecorded()
    from rocketmq_reindex.jobs.spark.engine import SparkEngine
    from rocketmq_reindex.jobs.tables.recorder import Recorder

    return Unrecorded() if not isinstance(engine, SparkEngine) else Recorder(settings, summary, reporter, engine, log)
