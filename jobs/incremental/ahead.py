"""Whether a build is sure to need Spark: then a session may start while Python still imports. Nothing slow is imported here."""

from __future__ import annotations

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.incremental import last_build
from rocketmq_reindex.jobs.incremental.scan_place import store_of
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.udfs.scan.segments import Commitlog


def needs_spark(settings: BuildSettings, log: Commitlog) -> bool:
    """False also where it cannot be told yet: an incremental run looks more closely, behind the lock of DIR."""
    if settings.dry_run:
        return False
    if not settings.incremental:
        return True
    try:
        target = output.check_places(list(settings.inputs), settings.out, settings.overwrite)
        standing = output.standing(target)
        return standing is None or last_build.is_new(store_of(settings, target), standing.digest, log)
    except (ReindexError, OSError):
        # The run itself comes across it, and tells.
        return False
