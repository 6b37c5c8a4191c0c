"""Rows of batch ConsumeQueues. A cell holds units of one queue, so one task gets a queue's units in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.batch_queue import batch_runs, by_queue
from rocketmq_reindex.storage_format.queue.grouping import bucket_of, cut_cells
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.walk.state import BatchArrays
from rocketmq_reindex.udfs import schemas

QUEUE_BUCKETS = 1 << 31
"""So many buckets that each has one queue, except where hashes collide."""
_CELL_ROWS = cells.CELL_BYTES // (8 * cells.BATCH_COLUMNS)


def batch_rows(scanner: RangeScanner, number: int, batches: BatchArrays, keys: tuple[int, ...]) -> Iterator[schemas.Row]:
    """The rows of one scanned block of range ``number``: units (BATCHES), and the runs that show their order (BATCH_RUNS).

    ``keys[b]`` is the key of bucket b. Rows of BATCHES are sorted by the phy_offset of their first record.
    """
    if not len(batches.phy_offset):
        return
    columns, bounds = by_queue(batches, scanner.queue_count)
    present = np.flatnonzero(np.diff(bounds))
    names = scanner.queues.name[present].astype(np.int64)
    ids = scanner.queues.queue_id[present]
    texts = [scanner.names.texts[k].encode() for k in names]
    crc, parts = scanner.names.crc[names], np.zeros_like(present)
    runs = []
    for k, queue in enumerate(bucket_of(crc, ids, parts, QUEUE_BUCKETS).tolist()):
        units = columns[:, bounds[present[k]] : bounds[present[k] + 1]]
        for low in range(0, units.shape[1], _CELL_ROWS):
            part = units[:, low : low + _CELL_ROWS]
            cell = cells.pack([texts[k]], ids[k : k + 1], np.array([part.shape[1]], np.int32), part)
            yield schemas.Row(schemas.BATCHES, queue, keys[queue % len(keys)], number, cell, int(part[1, 0]))
        runs.append(batch_runs(units))
    counts = np.array([run.shape[1] for run in runs], np.int64)
    scanner.summary.runs += int(counts.sum())
    some = np.flatnonzero(counts)
    starts = np.cumsum(counts) - counts
    bucket = bucket_of(crc, ids, parts, len(keys))
    for target, cell in cut_cells(
        bucket[some], texts, some, ids[some], starts[some], counts[some], np.concatenate(runs, axis=1)
    ):
        yield schemas.Row(schemas.BATCH_RUNS, target, keys[target], number, cell)
