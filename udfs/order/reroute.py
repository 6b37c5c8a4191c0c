"""Move the units of queues out of order to the positions that the queue order policy gives them."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.names import WAITING_TOPICS
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.grouping import QueueBlock, bucket_of, cut_cells, rows_of
from rocketmq_reindex.storage_format.queue.placement import PlacementTable, Rows
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.order.placements import Placements, Queue

_WAITING = frozenset(topic.encode() for topic in WAITING_TOPICS)


def _table(queue: Queue, kept: Rows, fills: Rows) -> PlacementTable:
    return PlacementTable(kept, fills, queue[0] in _WAITING)


@dataclass(frozen=True)
class Reroute:
    """Maps rows of UNITS to rows of UNITS: units of queues out of order get new positions, all other cells stay as they are.

    ``placements`` is the plan of those queues (``PlanWriter``). ``units_per_file`` is the size of a ConsumeQueue file in units,
    ``keys[b]`` the key of bucket b.
    """

    placements: str
    units_per_file: int
    keys: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = Placements(self.placements, _table)
        return schemas.batches(row for batch in batches for row in self._rows(batch, table))

    def _rows(self, batch: pa.RecordBatch, table: Placements[PlacementTable]) -> Iterator[schemas.Row]:
        for row in schemas.rows_of(batch):
            pieces = cells.unpack(row.data, cells.UNIT_COLUMNS)
            queues = list(zip(pieces.names, pieces.queue_ids.tolist(), strict=True))
            odd = table.having(queues)
            if not odd.any():
                yield row
                continue
            starts = np.cumsum(pieces.counts, dtype=np.int64) - pieces.counts
            keep = np.flatnonzero(~odd)
            if len(keep):
                rows = rows_of(starts[keep], pieces.counts[keep].astype(np.int64))
                plain = cells.pack(
                    [pieces.names[k] for k in keep],
                    pieces.queue_ids[keep],
                    pieces.counts[keep],
                    pieces.columns[:, rows],
                )
                yield row._replace(data=plain)
            # Random offsets make a piece of nearly every unit: those of a queue are placed together. They ascend by phy_offset.
            by_queue: dict[tuple[bytes, int], list[int]] = defaultdict(list)
            for k in np.flatnonzero(odd).tolist():
                by_queue[queues[k]].append(k)
            for queue, numbers in by_queue.items():
                rows, placement = rows_of(starts[numbers], pieces.counts[numbers].astype(np.int64)), table.get(queue)
                assert placement is not None
                yield from self._route(row.range_number, queue, placement.apply(pieces.columns[:, rows]))

    def _route(self, number: int, queue: tuple[bytes, int], units: npt.NDArray[np.int64]) -> Iterator[schemas.Row]:
        if not units.shape[1]:
            return
        n = units.shape[1]
        block = QueueBlock(np.zeros(n, np.int32), units[0], units[1], units[2].astype(np.int32), units[3], 1)
        _, file_number, starts, counts = block.pieces(self.units_per_file)
        crc = np.full(len(starts), zlib.crc32(queue[0]), np.uint32)
        ids = np.full(len(starts), queue[1], np.int32)
        bucket = bucket_of(crc, ids, file_number, len(self.keys))
        zeros = np.zeros(len(starts), np.int64)
        for target, cell in cut_cells(bucket, [queue[0]], zeros, ids, starts, counts, block.columns):
            yield schemas.Row(schemas.UNITS, target, self.keys[target], number, cell)
