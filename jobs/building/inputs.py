"""What a build starts from: its folders, the log, and what lies beside it. All is checked once, before Spark is started."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.jobs.building.empty_log import check_segments
from rocketmq_reindex.jobs.building.planning import check_range_size
from rocketmq_reindex.jobs.building.running_broker import check_broker
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.store_sizes import check_sizes
from rocketmq_reindex.jobs.command.tables_place import check_place
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.store import rocksdb
from rocketmq_reindex.jobs.store.segments import Commitlog, list_segments


@dataclass(frozen=True)
class Inputs:
    """What was found before a build."""

    target: str
    """the real path of DIR"""
    log: Commitlog
    warnings: tuple[str, ...]
    passing: tuple[str, ...]
    """warnings that hold for the moment, such as that a broker may be running: they are not in the manifest"""


def look_at(settings: BuildSettings) -> Inputs:
    """Check the folders that a build is given, and list its log.

    Raises InputError for folders that cannot be used, a running broker, a log without segments, and sizes that do not fit, of
    files or of ranges.
    """
    # An incremental run may know what it left in DIR.
    inputs, known = list(settings.inputs), settings.incremental
    target = output.check_places(inputs, settings.out, settings.overwrite, may_lack_manifest=known)
    check_place(settings.tables, (settings.out, *settings.inputs))
    log = list_segments(settings.roots, settings.segment_size, may_be_short=settings.may_be_short)
    check_range_size(settings.range_size, log.size)
    passing = tuple(check_broker(settings))
    warnings = (
        *settings.conf_notes,
        *log.warnings,
        *check_segments(settings, log, target),
        *rocksdb.of_build(settings, settings.only),
        *check_sizes(settings),
    )
    return Inputs(target, log, warnings, passing)
