"""What follows from the settings: ranges, what a scan looks for, the checkpoint, how much will be read and written."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.engines.engine import LOG_BYTES
from rocketmq_reindex.jobs.engines.local import cores_of
from rocketmq_reindex.jobs.store.settings import Commitlog, StoreSettings
from rocketmq_reindex.storage_format import checkpoints, errors, layouts
from rocketmq_reindex.storage_format.digest import CHUNK
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.index.layout import IndexFilePlan
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, EXT_SIZE_MIN, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan import range_scan, ranges as scan_ranges
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from rocketmq_reindex.udfs.write.index import ends as ends_of, staged_items

# --------------------------------------------------------------------------------------------------------------------- planning
# What follows from the settings: how large ranges are, what a scan looks for, what the checkpoint says.

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
    """Raise InputError for a --range-size that cuts ``size`` bytes of log into too many ranges; 0 for none."""
    count = -(-size // limit) if limit else 0
    if count > RANGES_MAX and limit < CHUNK:
        raise errors.InputError(
            f"--range-size {limit}: cuts {size:,} bytes of log into {counted(count, 'range')}, each a task: take at least "
            f"{min(CHUNK, -(-size // RANGES_MAX)):,}, or leave it out"
        )


def store_scan(settings: StoreSettings) -> ScanSettings:
    """Return what a scan of the whole store looks for."""
    return ScanSettings(
        crc_mode=r.CRC_MODES[settings.crc],
        broker_version=settings.broker_version,
        lmq=settings.lmq,
        delays=settings.delays,
        batch_topics=settings.batch_topics,
        committed=settings.committed,
    )


def scan_settings(settings: BuildSettings) -> ScanSettings:
    """Return what the scan of a build looks for."""
    return dataclasses.replace(
        store_scan(settings),
        include=settings.include_topics,
        exclude=settings.exclude_topics,
        until_time=settings.until_time,
        want_units=layouts.QUEUES in settings.only,
        want_items="index" in settings.only or "checkpoint" in settings.only,
        want_topics=settings.write_topics,
        want_messages=settings.write_delay or settings.filters is not None,
        # A build passes over light queues that stop a broker, and takes records that lack a CRC.
        strict_lmq=settings.mends and settings.lmq,
        need_crc=settings.mends and settings.property_crc_forced,
        window=settings.window,
        stop_at_damage=settings.on_damage == "stop",
    )


def make_checkpoint(
    settings: BuildSettings, log: Commitlog, accepted: list[scan_ranges.RangeSummary], plans: list[IndexFilePlan]
) -> checkpoints.Checkpoint:
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
        return checkpoints.Checkpoint(newest, newest, max([0, *ends]), 0, last, last).of_version(settings.rules)
    if log.segments and not dispatched and not settings.partial:
        # CommitLog.recoverNormally leaves what it started from: the end of the last segment.
        last = log.segments[-1].segment_end
    logics, logics_offset = (with_units[-1].last_unit_time, with_units[-1].last_unit) if with_units else (0, 0)
    if settings.rules.thorough_flush:
        logics = max(0, logics)
    index = [end for end in ends if end > 0]
    physic = 0
    if log.segments and log.segments[-1].lead:
        # Where DLedger has the log, queues set physic, too (ConsumeQueue.putMessagePositionInfoWrapper), and nothing sets
        # confirmPhyOffset (DLedgerCommitLog.setConfirmOffset).
        physic, last = logics, 0
    return checkpoints.Checkpoint(physic, logics, index[-1] if index else 0, 0, last, logics_offset).of_version(settings.rules)


# --------------------------------------------------------------------------------------------------------------------- estimate
# What a build will read and write: a guess from a sample before the scan, the counts after it.

SAMPLE_BYTES = 4 << 20
BYTES_PER_SECOND_AND_CORE = 400e6
RECORDS_PER_SECOND_AND_CORE = 900e3
START_SECONDS = {"spark": 12.0, "local": 1.0}
"""Rough figures of one laptop core with a warm page cache; the estimate says so."""
BLOCK = 4096
DATABASE_UNIT = 80
"""Bytes that a unit takes at most for a RocksDB database: spooled, and in its table."""
KEPT_UNIT = 16
"""Bytes that a unit takes at most in the rows of the local engine, unless its queue has few; the rows lie beside the result."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the first bytes of some segments hold. ``empty`` bytes after them are zeros: segments are allocated whole."""

    bytes: int
    records: int
    units: int
    batch_units: int
    items: int
    queues: int
    empty: int

    def share(self, size: int) -> float:
        """Return how many times larger than the sample a log of ``size`` bytes is."""
        return max(0, size - self.empty) / self.bytes if self.bytes else 0.0


def sample(scan: ScanSettings, log: Commitlog) -> Sample:
    """Return a scan of the first bytes of up to three segments."""
    scanner = range_scan.RangeScanner(dataclasses.replace(scan, chunk=SAMPLE_BYTES, block_rows=1 << 17))
    count = len(log.segments)
    totals, queues, empty = np.zeros(5, np.int64), 0, 0
    for segment in [log.segments[k] for k in sorted({0, count // 2, count - 1})] if count else []:
        high = min(segment.data_end, segment.start + SAMPLE_BYTES)
        spec = scan_ranges.RangeSpec(0, "", segment.start, segment.segment_end, high, segment.start, high, True, segment.lead)
        with SegmentReader(segment.path, segment.start) as reader:
            for _ in scanner.scan(spec, reader.read):
                pass
        out = scanner.summary
        end = max(out.end, out.tail, segment.start)
        totals += (min(end, high) - segment.start, out.records, out.units, out.batch_units, out.items)
        if out.tail_code == r.ZERO and out.last_nonzero < 0:
            empty += segment.data_end - end
        queues = max(queues, out.queues)
    size, records, units, batch_units, items = (int(v) for v in totals)
    return Sample(size, records, units, batch_units, items, queues, empty)


def dry_run_lines(settings: BuildSettings, scan: ScanSettings, log: Commitlog) -> Iterator[str]:
    """Yield the lines of the plan that a dry run prints."""
    cores = os.cpu_count() or 1
    if settings.engine == "local":
        cores = cores_of(settings.master)
    elif settings.master.startswith("local[") and settings.master[6:-1].isdigit():
        cores = int(settings.master[6:-1])
    segment_bytes = max((s.segment_end - s.start for s in log.segments), default=1)
    size = range_size(settings, log.size, segment_bytes, cores)
    ranges = scan_ranges.cut_ranges(log.segments, size, settings.until_offset)
    log = dataclasses.replace(log, segments=[s for s in log.segments if s.start < settings.until_offset])
    log_bytes = sum(max(0, min(s.data_end, settings.until_offset) - s.start) for s in log.segments)
    first = log.segments[0].name if log.segments else "-"
    last = log.segments[-1].name if log.segments else "-"
    sampled = sample(scan, log)
    share = sampled.share(log_bytes)
    records, units, items = (int(share * v) for v in (sampled.records, sampled.units + sampled.batch_units, sampled.items))
    queue_files = max(sampled.queues, -(-units // (settings.cq_file_size // UNIT_SIZE))) if units else 0
    index_files = -(-items // (settings.index_items - 1)) if items else int(bool(records))
    seconds = (
        START_SECONDS[settings.engine]
        + max(log_bytes / BYTES_PER_SECOND_AND_CORE, records / RECORDS_PER_SECOND_AND_CORE) / cores
    )
    yield f"would read  {counted(len(log.segments), 'segment')} ({first} to {last}), {counted(log_bytes, 'byte')}"
    yield f"            in {counted(len(ranges), 'range')} of at most {counted(size, 'byte')}"
    yield f"expected    about {counted(records, 'record')} (from a sample of {counted(sampled.bytes, 'byte')})"
    if settings.makes_files:
        yield f"            about {counted(units, 'unit')} in at least {counted(queue_files, 'ConsumeQueue file')}"
    if settings.makes_database:
        yield f"            about {counted(units, 'unit')} in RocksDB, in {settings.database_folder}/"
    if "index" in settings.only:
        yield f"            about {counted(items, 'item')} in {counted(index_files, 'IndexFile')}"
    yield f"time        about {seconds:,.0f} s on {counted(cores, 'core')} (a rough figure, warm page cache)"
    yield f"would write {escape(settings.out)} ({', '.join(settings.only)})"
    if settings.write_delay:
        yield "            and config/delayOffset.json and timer files, by what the log says was delivered"


def check_free(
    settings: BuildSettings, scan: ScanSettings, log: Commitlog, place: str,
    accepted: list[scan_ranges.RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None, extra_units: int = 0,
    besides: int = 0,
) -> None:  # fmt: skip
    """Check the free space. Raises InputError when the output cannot fit, by a sample or, given ``accepted``, by the counts.

    ``place`` is a folder on the disk of the output. ``besides``: so many bytes are needed for something else.
    """
    free = files.free_bytes(place)
    if free is None:
        return
    if accepted is None:
        sampled = sample(scan, log)
        size = sum(max(0, min(segment.data_end, settings.until_offset) - segment.start) for segment in log.segments)
        share = sampled.share(size)
        items, units, batches = (int(share * v) for v in (sampled.items, sampled.units, sampled.batch_units))
        staged, index_files, queues = items * ix.STAGED.itemsize, -(-items // (settings.index_items - 1)), sampled.queues
        if settings.engine == "local":
            staged += (units + batches) * KEPT_UNIT
    else:
        items, units, batches = (sum(getattr(s, name) for s in accepted) for name in ("items", "units", "batch_units"))
        staged, index_files, queues = 0, len(plans or []), max((s.queues for s in accepted), default=0)
    needed = staged + besides
    if settings.makes_database:
        needed += (units + extra_units) * DATABASE_UNIT
    if settings.makes_files:
        needed += (units + extra_units) * UNIT_SIZE + batches * BATCH_UNIT_SIZE + queues * BLOCK
        if settings.cq_ext != "none" and settings.filters is not None:
            needed += units * (EXT_SIZE_MIN + settings.filters.bits // 8) + queues * BLOCK
    if "index" in settings.only:
        needed += items * ix.ITEM_SIZE + index_files * min(settings.hash_slots * ix.SLOT_SIZE, items * BLOCK)
    if needed > free:
        raise errors.InputError(
            f"{escape(settings.out)}: needs about {needed:,} bytes where {free:,} are free: make room or choose another disk"
        )
