"""Write the files of batch ConsumeQueues. The units of a queue come in the order of the log and fill its files in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import Digest, new_digest
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.batch_queue import batch_units
from rocketmq_reindex.storage_format.queue.placement import BatchPlacement
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE
from rocketmq_reindex.udfs import files, results, schemas
from rocketmq_reindex.udfs.order.placements import Placements
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queue_files import FilesResult, Line, entry_line, queue_path, write_part

FOLDER = "batchconsumequeue"
"""``StorePathConfigHelper.getStorePathBatchConsumeQueue``"""


@dataclass
class _Queue:
    """One queue while its files are written."""

    name: str
    queue_id: int
    placement: BatchPlacement | None
    file_number: int = 0
    filled: int = 0
    """units in the open file"""
    writer: files.Writer | None = None
    digest: Digest = field(default_factory=new_digest)


@dataclass(frozen=True)
class WriteBatches:
    """Reduces rows of BATCHES to files of ``file_size`` bytes (``BatchConsumeQueue``, RocketMQ 5.3).

    Rows come by bucket and ``sort_key``. ``placements`` is the plan of the queues out of order (``PlanWriter``), or "".
    ``empty``: whether units without a message are written, as the broker does. Leaves a result (``FilesResult``).
    """

    staging: StagingFolder
    file_size: int
    placements: str
    empty: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda _, kept, fills: BatchPlacement(kept, fills))
        lines, counts = list[Line](), FilesResult("")
        queues: dict[tuple[bytes, int], _Queue] = {}
        try:
            for cells_of_bucket in schemas.by_bucket(batches):
                for cell in cells_of_bucket:
                    pieces = cells.unpack(cell.data, cells.BATCH_COLUMNS)
                    name, queue_id = pieces.names[0], int(pieces.queue_ids[0])
                    queue = queues.get((name, queue_id))
                    if queue is None:
                        placement = odd.get((name, queue_id))
                        queue = queues[name, queue_id] = _Queue(name.decode(), queue_id, placement)
                    lines += self._append(queue, pieces.columns, counts)
                lines += self._finish(queues, counts)
        except BaseException:
            for queue in queues.values():
                if queue.writer is not None:
                    queue.writer.abandon()
            raise
        if lines:
            yield results.batch([dataclasses.replace(counts, part=write_part(self.staging, FOLDER, lines))])

    def _append(self, queue: _Queue, units: npt.NDArray[np.int64], counts: FilesResult) -> Iterator[Line]:
        if not self.empty:
            units = units[:, units[5] > 0]
        image = batch_units(queue.placement.apply(units) if queue.placement else units)
        units_per_file = self.file_size // BATCH_UNIT_SIZE
        while len(image):
            if queue.writer is None:
                target = files.join(self.staging.tree, _path(queue, self.file_size))
                files.make_folder(files.parent(target), below=self.staging.tree)
                queue.writer = files.Writer(self.staging.temporary, target)
            some = image[: units_per_file - queue.filled].view(np.uint8)
            queue.writer.append(some)
            queue.digest.update(some.data)
            queue.filled += len(some) // BATCH_UNIT_SIZE
            image = image[len(some) // BATCH_UNIT_SIZE :]
            if queue.filled == units_per_file:
                yield self._close(queue, counts)

    def _close(self, queue: _Queue, counts: FilesResult) -> Line:
        """Finish the open file: the next units go to the next one. Returns its line of the manifest."""
        assert queue.writer is not None
        queue.writer.finish(self.staging.stored(self.file_size))
        relative, used = _path(queue, self.file_size), queue.filled * BATCH_UNIT_SIZE
        line = entry_line(relative, self.file_size, used, queue.digest.digest().hex(), queue.filled)
        counts.add(queue.filled, used)
        queue.writer, queue.digest, queue.filled = None, new_digest(), 0
        queue.file_number += 1
        return line

    def _finish(self, queues: dict[tuple[bytes, int], _Queue], counts: FilesResult) -> list[Line]:
        lines = [self._close(queue, counts) for queue in queues.values() if queue.writer is not None]
        queues.clear()
        return lines


def _path(queue: _Queue, file_size: int) -> str:
    return queue_path(FOLDER, queue.name, queue.queue_id, queue.file_number * file_size)
