"""Who records a run. Only a run with ``--tables`` imports what writes them."""

from __future__ import annotations

from rocketmq_reindex.jobs.building.recording import Unrecorded
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.udfs.scan.segments import Commitlog


def recorder_of(settings: BuildSettings, summary: Summary, reporter: Reporter, engine: Engine, log: Commitlog) -> Unrecorded:
    """Return what records a run in the Delta tables of ``--tables``, or what records nothing."""
    if not settings.tables:
        return Unrecorded()
    from rocketmq_reindex.jobs.spark.engine import SparkEngine
    from rocketmq_reindex.jobs.tables.recorder import Recorder

    return Unrecorded() if not isinstance(engine, SparkEngine) else Recorder(settings, summary, reporter, engine, log)
