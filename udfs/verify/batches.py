"""Compare the files of batch ConsumeQueues with the records of the log, one unit for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.queues import QueueView, UnitChecker
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.batch_queue import BATCH_UNIT, batch_units
from rocketmq_reindex.storage_format.queue.placement import BatchPlacement
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.order.placements import Placements
from rocketmq_reindex.udfs.verify.look import LogLook
from rocketmq_reindex.udfs.verify.queue_files import QueueFiles
from rocketmq_reindex.udfs.verify.queues import BROKER, IN_ORDER, LOGICAL, QueueTask, QueueWord
from rocketmq_reindex.udfs.verify.scan import AT_FILES
from rocketmq_reindex.udfs.write.batches import FOLDER

Int64s = npt.NDArray[np.int64]
_FIELDS: Final = len(BATCH_UNIT.names or ())


@dataclass
class _Batch:
    """One queue of a bucket while its rows come; each order has its own cursor, as fills and empty units differ."""

    listed: bool = False
    table: list[tuple[int, int]] = field(default_factory=list)
    checks: list[tuple[str, UnitChecker, BatchPlacement | None]] | None = None
    files: QueueFiles | None = None
    start: int = 0
    """position of the first unit that has not expired"""


@dataclass(frozen=True)
class VerifyBatches:
    """``placements`` is the plan that says where the logical placements of queues out of order are (``PlanWriter``).

    In a broker's order whatever comes is appended.
    """

    task: QueueTask
    placements: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda _, kept, fills: BatchPlacement(kept, fills))
        word, look = QueueWord(), LogLook(self.task.segments)
        queues: dict[tuple[bytes, int], _Batch] = {}
        for cells_of_bucket in schemas.by_bucket(batches):
            for _, place, data in cells_of_bucket:
                pieces = cells.unpack(data, cells.BATCH_COLUMNS)
                key = (pieces.names[0], int(pieces.queue_ids[0]))
                queue = queues.setdefault(key, _Batch())
                if place == AT_FILES:
                    queue.listed = True
                    queue.table += zip(*pieces.columns[:2].tolist(), strict=True)
                else:
                    self._take(key, queue, pieces.columns, look, odd)
            self._finish(queues, word, look, odd)
        yield schemas.result([word.to_json()])

    def _take(
        self, key: tuple[bytes, int], queue: _Batch, units: Int64s, look: LogLook, odd: Placements[BatchPlacement]
    ) -> None:
        if queue.checks is None:
            self._open(key, queue, look, odd)
        for order, check, placement in queue.checks or ():
            mine = units if order == BROKER else units[:, units[5] > 0]
            image = batch_units(placement.apply(mine) if placement else mine)
            rows = np.empty((1 + _FIELDS, len(image)), np.int64)
            first = queue.start if check.next < 0 else check.next
            rows[0] = np.arange(first, first + len(image))
            for row, name in enumerate(BATCH_UNIT.names or (), 1):
                rows[row] = image[name]
            check.expect(rows)

    def _open(self, key: tuple[bytes, int], queue: _Batch, look: LogLook, odd: Placements[BatchPlacement]) -> None:
        task = self.task
        queue.files = found = QueueFiles(task.folder, FOLDER, key, queue.table, task.file_size, BATCH_UNIT)
        queue.start = _first_left(found, task.log[0])

        def seen(place: int) -> int | None:
            return None if look.record(place) is None else -1

        spans = tuple((max(low, queue.start), high) for low, high in found.spans if high > queue.start)
        view = QueueView(found.read, spans, found.data_from, seen, found.path, task.log, task.unread, batch=True,
                         stale=task.stale)  # fmt: skip
        placement = odd.get(key)
        # A broker also writes units without a message.
        queue.checks = [(LOGICAL if placement else IN_ORDER, UnitChecker(view), placement), (BROKER, UnitChecker(view), None)]

    def _finish(
        self, queues: dict[tuple[bytes, int], _Batch], word: QueueWord, look: LogLook, odd: Placements[BatchPlacement]
    ) -> None:
        for key, queue in sorted(queues.items()):
            if queue.checks is None:
                self._open(key, queue, look, odd)
            assert queue.checks is not None
            assert queue.files is not None
            for _, check, _ in queue.checks:
                check.finish()
            order, check, _ = min(queue.checks, key=lambda c: c[1].tally.total)
            word.judge(key, check, queue.files, order, queue.listed, self.task)
        queues.clear()


def _first_left(found: QueueFiles, log_start: int) -> int:
    """Position of the first unit whose record has not expired: what the log begins with stands there."""
    for low, high in found.spans:
        for position in range(low, high, 1 << 16):
            place, size = found.read(position, min(1 << 16, high - position))[:2]
            left = ~((place >= 0) & (size >= RECORD_MIN) & (place + size <= log_start))
            if left.any():
                return position + int(np.argmax(left))
    return found.end
