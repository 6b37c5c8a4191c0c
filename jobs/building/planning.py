"""What follows from the settings: how large ranges are, what a scan looks for, what the checkpoint says."""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from rocketmq_reindex.jobs.building.settings import CRC_MODES, BuildSettings
from rocketmq_reindex.jobs.engines.tasks import LOG_BYTES
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.checkpoint import Checkpoint
from rocketmq_reindex.storage_format.digest import CHUNK
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.write.index import ends as ends_of
from rocketmq_reindex.udfs.write.index import staged_items

RANGES_MAX: Final = 10_000
"""Ranges that may be smaller than a chunk."""
RANGE_BYTES = 4 * CHUNK
"""Bytes of a range in an incremental build or verify, whatever the log's size and the cores: every run has the same ranges. At
most so much of what was read before is scanned again as the last segment grows."""


class RangeSettings(Protocol):
    """Settings of a build, or of a verify."""

    @property
    def incremental(self) -> bool: ...

    @property
    def range_size(self) -> int: ...


def range_size(settings: RangeSettings, size: int, segment_bytes: int, cores: int) -> int:
    """Return the bytes of a range: as ``even_range_size``, but of an incremental run the same in every run."""
    if settings.incremental:
        return settings.range_size or max(1, min(segment_bytes, RANGE_BYTES))
    return even_range_size(settings.range_size, size, segment_bytes, cores)


def even_range_size(limit: int, size: int, segment_bytes: int, cores: int) -> int:
    """Return the bytes of a range so that each core gets a few: whole segments where there are many, else whole chunks.

    A range has no more than a task may read. ``limit`` is the most that a range may have, 0 for no other limit; ``size`` is the
    bytes of the log.
    """
    per_core = -(-size // (2 * cores))
    wanted = min(max(segment_bytes, 1), -(-per_core // CHUNK) * CHUNK, LOG_BYTES)
    return max(1, min(wanted, limit or wanted))


def check_range_size(limit: int, size: int) -> None:
    """Raises InputError for a --range-size that cuts ``size`` bytes of log into too many ranges; 0 for none."""
    count = -(-size // limit) if limit else 0
    if count > RANGES_MAX and limit < CHUNK:
        raise InputError(
            f"--range-size {limit}: cuts {size:,} bytes of log into {counted(count, 'range')}, each a task: take at least "
            f"{min(CHUNK, -(-size // RANGES_MAX)):,}, or leave it out"
        )


def store_scan(settings: StoreSettings) -> ScanSettings:
    """Return what a scan of the whole store looks for."""
    return ScanSettings(
        crc_mode=CRC_MODES[settings.crc],
        broker_version=settings.broker_version,
        lmq=settings.lmq,
        delays=settings.delays,
        batch_topics=settings.batch_topics,
    )


def scan_settings(settings: BuildSettings) -> ScanSettings:
    """Return what the scan of a build looks for."""
    return dataclasses.replace(
        store_scan(settings),
        include=settings.include_topics,
        exclude=settings.exclude_topics,
        until_time=settings.until_time,
        want_units="consumequeue" in settings.only,
        want_items="index" in settings.only or "checkpoint" in settings.only,
        want_topics=settings.write_topics,
        want_messages=settings.write_delay,
        strict_lmq=settings.strict_lmq,
        need_crc=settings.need_crc,
        window=settings.window,
        stop_at_damage=settings.on_damage == "stop",
    )


def make_checkpoint(
    settings: BuildSettings, log: Commitlog, accepted: list[RangeSummary], plans: list[IndexFilePlan]
) -> Checkpoint:
    """Return the checkpoint of what was built (``StoreCheckpoint``, 4.9 to 5.5)."""
    dispatched = [s for s in accepted if s.records]
    with_units = [s for s in accepted if s.unit_records]
    last = dispatched[-1].last_dispatched if dispatched else 0
    ends = []
    for number, plan in enumerate(plans):
        followed = number + 1 < len(plans)
        if plan.stretches and (settings.checkpoint == "safe" or (plan.full and followed)):
            ends.append(int(staged_items(ends_of(plan.stretches)[1])[0]["time"]))
    if settings.checkpoint == "safe":
        newest = dispatched[-1].last_time if dispatched else 0
        # After a crash 5.5 begins in the segment that holds logicsPhysicalOffset, with enableAcceleratedRecovery at that very
        # byte (CommitLog.recoverAbnormally): so a record begins there. Each one before it has its units and items already;
        # what a partial build left out behind it is dispatched. A broker says the last record with a unit, 0 where none has:
        # then 5.5 does not load with that setting. The last record of all does as well: none behind that gets a unit.
        return Checkpoint(newest, newest, max([0, *ends]), 0, last, last).of_version(settings.rules)
    if log.segments and not dispatched and not settings.partial:
        # CommitLog.recoverNormally leaves what it started from: the end of the last segment.
        last = log.segments[-1].segment_end
    logics, logics_offset = (with_units[-1].last_unit_time, with_units[-1].last_unit) if with_units else (0, 0)
    if settings.rules.thorough_flush:
        logics = max(0, logics)
    index = [end for end in ends if end > 0]
    return Checkpoint(0, logics, index[-1] if index else 0, 0, last, logics_offset).of_version(settings.rules)
