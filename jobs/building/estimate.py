"""What a build will read and write: a guess from a sample before the scan, the counts after it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from rocketmq_reindex.jobs.building.planning import range_size
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.local.cores import cores_of
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary, cut_ranges
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader
from rocketmq_reindex.udfs.staging import StagingFolder

SAMPLE_BYTES = 4 << 20
BYTES_PER_SECOND_AND_CORE = 400e6
RECORDS_PER_SECOND_AND_CORE = 900e3
START_SECONDS = {"spark": 12.0, "local": 1.0}
"""Rough figures of one laptop core with a warm page cache; the estimate says so."""
BLOCK = 4096
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
    """Scan the first bytes of up to three segments."""
    scanner = RangeScanner(dataclasses.replace(scan, chunk=SAMPLE_BYTES, block_rows=1 << 17))
    count = len(log.segments)
    totals, queues, empty = np.zeros(5, np.int64), 0, 0
    for segment in [log.segments[k] for k in sorted({0, count // 2, count - 1})] if count else []:
        high = min(segment.data_end, segment.start + SAMPLE_BYTES)
        spec = RangeSpec(0, "", segment.start, segment.segment_end, high, segment.start, high, True)
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
    ranges = cut_ranges(log.segments, size, settings.until_offset)
    first = log.segments[0].name if log.segments else "-"
    last = log.segments[-1].name if log.segments else "-"
    sampled = sample(scan, log)
    share = sampled.share(log.size)
    records, units, items = (int(share * v) for v in (sampled.records, sampled.units + sampled.batch_units, sampled.items))
    queue_files = max(sampled.queues, -(-units // (settings.cq_file_size // UNIT_SIZE))) if units else 0
    index_files = -(-items // (settings.index_items - 1)) if items else int(bool(records))
    seconds = (
        START_SECONDS[settings.engine]
        + max(log.size / BYTES_PER_SECOND_AND_CORE, records / RECORDS_PER_SECOND_AND_CORE) / cores
    )
    yield f"would read  {counted(len(log.segments), 'segment')} ({first} to {last}), {counted(log.size, 'byte')}"
    yield f"            in {counted(len(ranges), 'range')} of at most {counted(size, 'byte')}"
    yield f"expected    about {counted(records, 'record')} (from a sample of {counted(sampled.bytes, 'byte')})"
    if "consumequeue" in settings.only:
        yield f"            about {counted(units, 'unit')} in at least {counted(queue_files, 'ConsumeQueue file')}"
    if "index" in settings.only:
        yield f"            about {counted(items, 'item')} in {counted(index_files, 'IndexFile')}"
    yield f"time        about {seconds:,.0f} s on {counted(cores, 'core')} (a rough figure, warm page cache)"
    yield f"would write {escape(settings.out)} ({', '.join(settings.only)})"
    if settings.write_delay:
        yield "            and config/delayOffset.json and timer files, by what the log says was delivered"


def check_free(
    settings: BuildSettings, scan: ScanSettings, log: Commitlog, staging: StagingFolder,
    accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None, extra_units: int = 0,
    besides: int = 0,
) -> None:  # fmt: skip
    """Check the free space. Raises InputError when the output cannot fit, by a sample or, given ``accepted``, by the counts.

    ``besides``: so many bytes are needed for something else.
    """
    free = files.free_bytes(staging.root)
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
    if "consumequeue" in settings.only:
        needed += (units + extra_units) * UNIT_SIZE + batches * BATCH_UNIT_SIZE + queues * BLOCK
    if "index" in settings.only:
        needed += items * ix.ITEM_SIZE + index_files * min(settings.hash_slots * ix.SLOT_SIZE, items * BLOCK)
    if needed > free:
        raise InputError(
            f"{escape(settings.out)}: needs about {needed:,} bytes where {free:,} are free: make room or choose another disk"
        )
