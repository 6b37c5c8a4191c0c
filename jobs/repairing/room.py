"""The room that a repaired log takes, asked for before anything of it is written, and what links save of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from rocketmq_reindex.jobs.repairing.settings import RepairSettings
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.repair.damage import Damage
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.repair.links import HARD, NONE
from rocketmq_reindex.udfs.staging import StagingFolder


def last_record(accepted: Sequence[RangeSummary]) -> int:
    """Return the offset of the log's last good record, -1 where it has none."""
    return max((summary.last_good for summary in accepted), default=-1)


def link_of(link: str, segment: Segment, last: int) -> str:
    """Return how ``segment`` may share its bytes with the old file, by ``link``; ``last`` as of ``last_record``.

    A broker writes on in the segment in which the log ends, and in those that it has made for later: a hard link would take
    that to the old log.
    """
    return NONE if link == HARD and segment.segment_end > last else link


def log_bytes(staging: StagingFolder, link: str, segments: Sequence[Segment], last: int, changed: frozenset[int]) -> int:
    """Return the bytes that copies of those ``segments`` take that share nothing; ``changed`` are the starts of mended ones."""
    shares: dict[tuple[str, str], bool] = {}

    def shared(segment: Segment) -> bool:
        wanted = link_of(link, segment, last)
        if wanted == NONE or segment.start in changed or segment.data_end < segment.segment_end:
            return False
        # The folders of one log may lie in several file systems.
        key = wanted, files.parent(segment.path)
        if key not in shares:
            shares[key] = _can_share(wanted, segment.path, staging)
        return shares[key]

    copied = [segment for segment in segments if segment.path and not shared(segment)]
    return sum(files.allocated(segment.path, segment.data_end - segment.start) for segment in copied)


def check_room(
    staging: StagingFolder, settings: RepairSettings, whole: Sequence[Segment], last: int, found: Sequence[Damage]
) -> None:  # fmt: skip
    """Raises InputError when the new log and the quarantine cannot fit. ``whole`` are all segments, ``found`` is the damage."""
    free = files.free_bytes(staging.root)
    if free is None:
        return
    needed = log_bytes(staging, settings.link, whole, last, frozenset(damage.segment.start for damage in found))
    needed += sum(max(0, min(damage.end, damage.segment.data_end) - damage.offset) for damage in found if damage.segment.path)
    if settings.replicas:
        needed += sum(damage.length for damage in found if not damage.segment.path)
    if needed > free:
        raise InputError(
            f"{escape(settings.out)}: the new log needs about {needed:,} bytes where {free:,} are free: make room, or choose a "
            "disk where --link works"
        )


def _can_share(link: str, path: str, staging: StagingFolder) -> bool:
    """Whether a file can be shared with the staging folder: tried."""
    trial = files.join(staging.temporary, uuid.uuid4().hex)
    try:
        return (link == HARD and files.link(path, trial)) or files.clone(path, staging.temporary, trial)
    finally:
        files.remove_tree(trial)
