"""The units of one scanned block, by queue, and the cells that they are packed into."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.grouping import QueueBlock, bucket_of, cut_cells
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.walk.state import UnitArrays

Int64s = npt.NDArray[np.int64]


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
