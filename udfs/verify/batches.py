"""Compare the files of batch ConsumeQueues with the records of the log, one unit for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.queue_view import QueueView
from rocketmq_reindex.storage_format.checks.queues import UnitChecker
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.batch_queue import BATCH_UNIT, batch_units
from rocketmq_reindex.storage_format.queue.placement import BatchPlacement
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.udfs import results, schemas
from rocketmq_reindex.udfs.order.placements import Placements
from rocketmq_reindex.udfs.progress import BucketsPosition
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify.queue_files import QueueFiles
from rocketmq_reindex.udfs.verify.queue_results import BROKER, IN_ORDER, LOGICAL, QueuesResult, QueueTask
from rocketmq_reindex.udfs.verify.record_heads import RecordHeads
from rocketmq_reindex.udfs.verify.scan import FILES_FIRST
from rocketmq_reindex.udfs.write.batches import FOLDER

Int64s = npt.NDArray[np.int64]
Check = tuple[str, UnitChecker, BatchPlacement | None]
"""A comparison with one order, and how that order places units."""
_FIELDS: Final = len(BATCH_UNIT.names or ())


@dataclass
class _Batch:
    """One queue of a bucket while its rows come. Each order is checked by itself, since fills and empty units differ."""

    listed: bool = False
    table: list[tuple[int, int]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    files: QueueFiles | None = None
    start: int = 0
    """position of the first unit that has not expired"""


@dataclass(frozen=True)
class VerifyBatches:
    """Reduces rows of BATCHES (files and units) to one result (``QueuesResult``).

    ``placements`` is the plan of the logical placements of queues out of order (``PlanWriter``), or "". In a broker's order
    each unit is appended (``BatchConsumeQueue``, RocketMQ 5.3). ``mean`` is as in ``BucketsPosition``.
    """

    staging: StagingFolder
    mean: int
    task: QueueTask
    placements: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda _, kept, fills: BatchPlacement(kept, fills))
        result, heads = QueuesResult(), RecordHeads(self.task.segments)
        queues: dict[tuple[bytes, int], _Batch] = {}
        position = BucketsPosition(self.staging, "batches", self.mean)
        for cells_of_bucket in schemas.by_bucket(batches):
            for cell in cells_of_bucket:
                pieces = cells.unpack(cell.data, cells.BATCH_COLUMNS)
                key = (pieces.names[0], int(pieces.queue_ids[0]))
                queue = queues.setdefault(key, _Batch())
                if cell.sort_key == FILES_FIRST:
                    queue.listed = True
                    queue.table += zip(*pieces.columns[:2].tolist(), strict=True)
                else:
                    self._take(queue, pieces.columns, self._opened(key, queue, heads, odd))
                    position.moved(cell.bucket, pieces.columns.shape[1])
            for key, queue in sorted(queues.items()):
                self._close(key, queue, result, self._opened(key, queue, heads, odd))
            queues.clear()
        position.ended()
        yield results.batch([result])

    @staticmethod
    def _take(queue: _Batch, units: Int64s, checks: list[Check]) -> None:
        for order, check, placement in checks:
            mine = units if order == BROKER else units[:, units[5] > 0]
            image = batch_units(placement.apply(mine) if placement else mine)
            rows = np.empty((1 + _FIELDS, len(image)), np.int64)
            first = queue.start if check.next < 0 else check.next
            rows[0] = np.arange(first, first + len(image))
            for row, name in enumerate(BATCH_UNIT.names or (), 1):
                rows[row] = image[name]
            check.expect(rows)

    def _opened(
        self, key: tuple[bytes, int], queue: _Batch, heads: RecordHeads, odd: Placements[BatchPlacement]
    ) -> list[Check]:
        """The checks of a queue, one for each order that it may have; all rows of its files have come."""
        if queue.checks:
            return queue.checks
        task = self.task
        queue.files = found = QueueFiles(task.folder, FOLDER, key, queue.table, task.file_size, BATCH_UNIT)
        queue.start = _first_left(found, task.log[0])

        def offset_of(phy_offset: int) -> int | None:
            return None if heads.at(phy_offset) is None else -1

        spans = tuple((max(low, queue.start), high) for low, high in found.spans if high > queue.start)
        view = QueueView(found.read, spans, found.data_from, offset_of, found.path, task.log, task.unread, batch=True,
                         stale=task.stale)  # fmt: skip
        placement = odd.get(key)
        # A broker also writes units without a message.
        queue.checks = [(LOGICAL if placement else IN_ORDER, UnitChecker(view), placement), (BROKER, UnitChecker(view), None)]
        return queue.checks

    def _close(self, key: tuple[bytes, int], queue: _Batch, result: QueuesResult, checks: list[Check]) -> None:
        assert queue.files is not None
        for _, check, _ in checks:
            check.finish()
        order, check, _ = min(checks, key=lambda c: c[1].tally.total)
        result.add(key, check, queue.files, order, queue.listed, self.task)


def _first_left(found: QueueFiles, log_start: int) -> int:
    """The position of the first unit whose record has not expired: the units of the log begin there."""
    for low, high in found.spans:
        for position in range(low, high, 1 << 16):
            phy_offset, size = found.read(position, min(1 << 16, high - position))[:2]
            left = ~((phy_offset >= 0) & (size >= RECORD_MIN) & (phy_offset + size <= log_start))
            if left.any():
                return position + int(np.argmax(left))
    return found.end
