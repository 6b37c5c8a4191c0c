"""The rows that a scanned block, or a whole range, gives: units, runs of queue offsets, evidence of delays, topics.

A cell holds units of one queue, or of the queues of one bucket, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, read_evidence
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.batch_queue import batch_runs, by_queue
from rocketmq_reindex.storage_format.queue.grouping import QueueBlock, bucket_of, cut_cells
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.topics import QUEUES_MAX
from rocketmq_reindex.storage_format.walk.state import BatchArrays, UnitArrays
from rocketmq_reindex.udfs import schemas

Int64s = npt.NDArray[np.int64]

QUEUE_BUCKETS: Final = 1 << 31
"""So many buckets that each has one queue, except where hashes collide."""
_BATCH_ROWS: Final = cells.CELL_BYTES // (8 * cells.BATCH_COLUMNS)
_EVIDENCE_ROWS: Final = (1 << 20) // EVIDENCE.itemsize


class Pieces(NamedTuple):
    """Stretches of rows, each of one queue: piece i has ``counts[i]`` rows of ``columns`` from row ``starts[i]`` on.

    ``queue[i]`` is the queue's number in the scan; ``columns`` is int64, columns by rows.
    """

    queue: Int64s
    starts: Int64s
    counts: Int64s
    columns: Int64s


class BlockCells:
    """The units (at least one) that ``scanner`` found in a block."""

    def __init__(self, scanner: RangeScanner, units: UnitArrays) -> None:
        queues = scanner.queue_count
        self._block = QueueBlock(*units, queues)
        self._names = scanner.queues.name[:queues].astype(np.int64)
        self._ids = scanner.queues.queue_id[:queues]
        self._crc = scanner.names.crc[self._names]
        self._texts = [scanner.names.texts[k].encode() for k in range(len(scanner.names.texts))]

    def pieces(self, units_per_file: int) -> tuple[Int64s, Pieces]:
        """The units (``cells.UNIT_COLUMNS`` columns), cut by queue and file.

        Returns for each piece the number of its file (int64), and the pieces.
        """
        queue, file_number, starts, counts = self._block.pieces(units_per_file)
        return file_number, Pieces(queue, starts, counts, self._block.columns)

    def runs(self) -> Pieces:
        """The runs of queue offsets (``cells.RUN_COLUMNS`` columns), one piece for each queue."""
        queue, columns = self._block.runs()
        return Pieces(*np.unique(queue, return_index=True, return_counts=True), columns)

    def bucket(self, queue: Int64s, part: Int64s, buckets: int) -> Int64s:
        """The bucket of each pair of queue and part (a file number, or 0), out of ``buckets``; all are int64."""
        return bucket_of(self._crc[queue], self._ids[queue], part, buckets)

    def cut(self, bucket: Int64s, pieces: Pieces) -> list[tuple[int, bytes]]:
        """The pieces packed into cells: (bucket, cell) in the order of buckets."""
        names, ids = self._names[pieces.queue], self._ids[pieces.queue]
        return cut_cells(bucket, self._texts, names, ids, pieces.starts, pieces.counts, pieces.columns)


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
        for low in range(0, units.shape[1], _BATCH_ROWS):
            part = units[:, low : low + _BATCH_ROWS]
            cell = cells.pack([texts[k]], ids[k : k + 1], np.array([part.shape[1]], np.int32), part)
            yield schemas.Row(schemas.BATCHES, queue, keys[queue % len(keys)], number, cell, int(part[1, 0]))
        runs.append(batch_runs(units))
    counts = np.array([run.shape[1] for run in runs], np.int64)
    scanner.summary.runs += int(counts.sum())
    with_runs = np.flatnonzero(counts)
    starts = np.cumsum(counts) - counts
    bucket = bucket_of(crc, ids, parts, len(keys))
    for target, cell in cut_cells(
        bucket[with_runs], texts, with_runs, ids[with_runs], starts[with_runs], counts[with_runs], np.concatenate(runs, axis=1)
    ):
        yield schemas.Row(schemas.BATCH_RUNS, target, keys[target], number, cell)


def delay_rows(block: Block, number: int, keys: tuple[int, ...]) -> Iterator[schemas.Row]:
    """Rows of DELAYED from one scanned block of range ``number``: cells of EVIDENCE. ``keys[b]`` is the key of bucket b."""
    rows = read_evidence(block.data, block.base, block.messages)
    bucket = rows["digest"] % len(keys)
    order = np.argsort(bucket, kind="stable")
    rows, bounds = rows[order], np.searchsorted(bucket[order], np.arange(len(keys) + 1))
    for target in np.flatnonzero(np.diff(bounds)).tolist():
        for low in range(int(bounds[target]), int(bounds[target + 1]), _EVIDENCE_ROWS):
            cell = rows[low : min(low + _EVIDENCE_ROWS, int(bounds[target + 1]))].tobytes()
            yield schemas.Row(schemas.DELAYED, target, keys[target], number, cell)


def topic_rows(scanner: RangeScanner, number: int, keys: tuple[int, ...]) -> Iterator[schemas.Row]:
    """Rows of TOPICS (``cells.TOPIC_COLUMNS`` columns) from the range ``number``, which ``scanner`` has just scanned.

    ``keys[b]`` is the key of bucket b.
    """
    names = scanner.names
    entries = names.topics()
    if not len(entries):
        return
    queues, many = np.zeros(len(names.texts), np.int64), np.zeros(len(names.texts), np.int64)
    count = scanner.queue_count
    name, highest = scanner.queues.name[:count], scanner.queues.queue_id[:count].astype(np.int64)
    np.maximum.at(queues, name, np.where(highest < QUEUES_MAX, highest + 1, 0))
    np.maximum.at(many, name, highest >= QUEUES_MAX)
    texts = [names.texts[k].encode() for k in entries]
    ids, ones = np.zeros(len(entries), np.int32), np.ones(len(entries), np.int64)
    bucket = bucket_of(names.crc[entries], ids, np.zeros_like(ones), len(keys))
    columns = np.stack([queues[entries], many[entries]])
    rows = np.arange(len(entries))
    for target, cell in cut_cells(bucket, texts, rows, ids, rows, ones, columns):
        yield schemas.Row(schemas.TOPICS, target, keys[target], number, cell)
