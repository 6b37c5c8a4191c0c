"""Decide where the units of queues out of order go.

Queues in order leave nothing. Those out of order go to staged files: a line for each (``OddQueue``), and its placement.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.logical_order import LogEvidence
from rocketmq_reindex.storage_format.queue.order import (
    BREAKS_MAX,
    Decision,
    Placement,
    irregular,
    order_appended,
    order_broker,
)
from rocketmq_reindex.storage_format.queue.runs import Run, broken_at, fewer_runs
from rocketmq_reindex.udfs import files, results, schemas
from rocketmq_reindex.udfs.order.placements import PlacementWriter, Queue
from rocketmq_reindex.udfs.order.queue_runs import QueueRuns
from rocketmq_reindex.udfs.order.results import OddQueue, OrderResult, cap_decisions, odd_queue
from rocketmq_reindex.udfs.staging import StagingFolder

QUEUES_MAX = 20_000
"""Queues in one part: there may be very many out of order."""


def order_digest(order: Placement) -> str:
    """The digest of a placement: where it is equal, units of the same records stand at the same positions.

    An incremental build keeps the files of such a queue.
    """
    return new_digest([json.dumps([order.kept, order.fills, order.opened]).encode()]).digest().hex()


@dataclass(frozen=True)
class DecideOrder:
    """Reduces rows of runs (RUNS or BATCH_RUNS) to results (``OrderResult``).

    ``policy`` is logical, broker or fail; what fail does not refuse is placed as logical places it. Nothing is decided about
    records from the phy_offset ``cut`` on. ``opens``: also find files without units at a queue's end (``Placement.opened``).
    ``batch``: the queues are batch ConsumeQueues, in which a run spans as many queue offsets as its records have messages, and
    which have no pre-blank: ``units_per_file`` is 1.
    """

    staging: StagingFolder
    policy: str
    units_per_file: int
    log: LogEvidence
    cut: int = INT64_MAX
    opens: bool = False
    batch: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = files.join(self.staging.plans, f"placements-{uuid.uuid4().hex}")
        with files.writing(self.staging.temporary, path) as writer:
            placements = PlacementWriter(writer, path)
            pre_blank, odd = 0, list[tuple[Queue, str]]()
            for cells_of_bucket in schemas.by_bucket(batches):
                runs = self._runs(cell.data for cell in cells_of_bucket)
                pre_blank += runs.pre_blank(self.units_per_file)
                found = runs.odd(self._fills_head if self.policy != "broker" else None)
                odd += [(queue, self._decide(queue, columns, placements).to_json()) for queue, columns in found]
                if len(odd) >= QUEUES_MAX:
                    yield self._part(odd)
                    odd = []
            writer.finish()
        if odd:
            yield self._part(odd)
        yield results.batch([OrderResult(pre_blank=0 if self.batch else pre_blank)])

    def _part(self, odd: list[tuple[Queue, str]]) -> pa.RecordBatch:
        path = files.join(self.staging.plans, f"odd-{uuid.uuid4().hex}")
        files.write_bytes(self.staging.temporary, path, [f"{line}\n".encode() for _, line in sorted(odd)])
        return results.batch([OrderResult(part=path)])

    def _fills_head(self, first: int, phy_offset: int) -> bool:
        return self.log.fills_head(first, phy_offset, self.units_per_file)

    def _missing_head(self, first: Run) -> list[Decision]:
        if not self._fills_head(first.first, first.phy_offset):
            return []
        missing = first.first % self.units_per_file
        return [Decision("gap", first.first - missing, missing)]

    def _runs(self, some: Iterable[bytes]) -> QueueRuns:
        return QueueRuns(cells.unpack(cell, cells.BATCH_RUN_COLUMNS if self.batch else cells.RUN_COLUMNS) for cell in some)

    def _decide(self, queue: Queue, columns: npt.NDArray[np.int64], placements: PlacementWriter) -> OddQueue:
        topic, queue_id = queue
        breaks = len(broken_at(columns))
        if breaks > BREAKS_MAX:
            return OddQueue(topic.decode(), queue_id, breaks)
        runs = fewer_runs(columns)
        if self.policy == "fail" and (refused := [*self._missing_head(runs[0]), *irregular(runs)]):
            return OddQueue(topic.decode(), queue_id, decisions=cap_decisions(refused))
        order = self._order(runs)
        found = odd_queue(topic, queue_id, order)
        found.where, found.batch, found.digest = placements.put(order), self.batch, order_digest(order)
        return found

    def _order(self, runs: list[Run]) -> Placement:
        if self.policy == "broker" and self.batch:
            return order_appended(runs)
        if self.policy == "broker":
            return order_broker(runs, self.units_per_file if self.opens else 0)
        return self.log.place(runs, self.units_per_file, self.cut)
