"""What a build goes on from: places, the log, and what lies beside it. All is looked at once, before Spark is started."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.jobs.building.empty_log import check_segments
from rocketmq_reindex.jobs.building.running_broker import check_broker
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.store_sizes import check_sizes
from rocketmq_reindex.jobs.command.tables_place import check_place
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.store.segments import Commitlog, list_segments


@dataclass(frozen=True)
class Inputs:
    """``target`` is the real place of DIR; ``warnings`` are of what was seen.

    ``passing`` are warnings of this moment: whether a broker runs. They are no part of the result, so not of the manifest.
    """

    target: str
    log: Commitlog
    warnings: tuple[str, ...]
    passing: tuple[str, ...]


def look_at(settings: BuildSettings) -> Inputs:
    """Raises InputError for places that cannot be, a broker that runs, a log without segments, and sizes that do not fit."""
    target = output.check_places(list(settings.inputs), settings.out, settings.overwrite)
    check_place(settings.tables, (settings.out, *settings.inputs))
    log = list_segments(settings.roots, settings.segment_size)
    passing = tuple(check_broker(settings))
    told = (*log.warnings, *check_segments(settings, log, target), *check_sizes(settings))
    return Inputs(target, log, told, passing)
