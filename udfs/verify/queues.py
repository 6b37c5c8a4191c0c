"""Compare the files of ConsumeQueues with the units of the log: one task gets all of a queue, in the order of the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.queue_view import QueueView
from rocketmq_reindex.storage_format.checks.queues import UnitChecker
from rocketmq_reindex.storage_format.names import WAITING_TOPICS
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.order import Placement, order_broker
from rocketmq_reindex.storage_format.queue.placement import PlacementTable
from rocketmq_reindex.storage_format.queue.runs import Run
from rocketmq_reindex.udfs import results, schemas
from rocketmq_reindex.udfs.order.placements import Placements
from rocketmq_reindex.udfs.progress import BucketsPosition
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.verify.queue_files import QueueFiles
from rocketmq_reindex.udfs.verify.queue_results import (
    BROKER,
    EMPTY_ENDS,
    FOLDER,
    IN_ORDER,
    LOGICAL,
    REMADE,
    SKIPPED,
    QueuesResult,
    QueueTask,
)
from rocketmq_reindex.udfs.verify.record_heads import RecordHeads
from rocketmq_reindex.udfs.verify.scan import FILES_FIRST, RUNS_NEXT

Int64s = npt.NDArray[np.int64]
OffsetOf = Callable[[int], int | None]
"""The queue offset of the record at a phy_offset: None without a record, -1 for one of another queue"""


@dataclass
class _Queue:
    """One queue of a bucket while its rows come."""

    listed: bool = False
    """whether the store has a folder for it"""
    table: list[tuple[int, int]] = field(default_factory=list)
    runs: list[Int64s] = field(default_factory=list)
    checks: list[tuple[str, UnitChecker, PlacementTable | None]] | None = None
    files: QueueFiles | None = None


@dataclass(frozen=True)
class VerifyQueues:
    """Reduces rows of UNITS (files, runs and units of ``VerifyScan`` and ``ListQueues``) to one result (``QueuesResult``).

    A queue out of order is compared with each order that it may have; the one that fits best counts. ``placements`` is the
    plan of where ``--queue-order logical`` puts their units (``PlanWriter``), or "". ``mean`` is as in ``BucketsPosition``.
    """

    staging: StagingFolder
    mean: int
    task: QueueTask
    placements: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result, heads = QueuesResult(), RecordHeads(self.task.segments)
        odd = Placements(self.placements, lambda key, kept, fills: PlacementTable(kept, fills, _waits(key[0])))
        queues: dict[tuple[bytes, int], _Queue] = {}
        position = BucketsPosition(self.staging, "queues", self.mean)
        for cells_of_bucket in schemas.by_bucket(batches):
            for cell in cells_of_bucket:
                for name, queue_id, rows in cells.unpack(cell.data, cells.UNIT_COLUMNS).parts():
                    queue = queues.setdefault((name, queue_id), _Queue())
                    if cell.sort_key == FILES_FIRST:
                        queue.listed = True
                        queue.table += zip(*rows[:2].tolist(), strict=True)
                    elif cell.sort_key == RUNS_NEXT:
                        queue.runs.append(rows)
                    else:
                        self._take((name, queue_id), queue, rows, heads, odd)
                        position.moved(cell.bucket, rows.shape[1])
            self._finish(queues, result, heads, odd)
        position.ended()
        yield results.batch([result])

    def _take(
        self, key: tuple[bytes, int], queue: _Queue, rows: Int64s, heads: RecordHeads, odd: Placements[PlacementTable]
    ) -> None:
        if queue.checks is None:
            self._open(key, queue, heads, odd)
        for order, check, table in queue.checks or ():
            if order == SKIPPED:
                continue
            if table is None:
                check.expect(rows)
            else:
                placed = table.apply(rows)
                check.expect(placed[:, np.argsort(placed[0], kind="stable")])

    def _open(self, key: tuple[bytes, int], queue: _Queue, heads: RecordHeads, odd: Placements[PlacementTable]) -> None:
        task = self.task
        queue.files = found = QueueFiles(task.folder, FOLDER, key, queue.table, task.file_size)
        name = key[0].decode("utf-8", "surrogateescape")

        def offset_of(phy_offset: int) -> int | None:
            head = heads.at(phy_offset)
            if head is None:
                return None
            return head.queue_offset if (head.topic, head.queue_id) == (name, key[1]) else -1

        view = QueueView(
            found.read, found.spans, found.data_from, offset_of, found.path, task.log, task.unread, stale=task.stale
        )
        queue.checks = []
        logical = odd.get(key) if queue.runs else None
        for order, table in self._orders(queue.runs, found, logical, _waits(key[0])):
            # Where a broker appends in the wrong place, a unit does not stand at its record's offset.
            mine = view if order not in (BROKER, REMADE) else dataclasses.replace(view, look=_without_offsets(offset_of))
            queue.checks.append((order, UnitChecker(mine), table))
        queue.runs = []

    def _orders(
        self, parts: list[Int64s], found: QueueFiles, logical: PlacementTable | None, waits: bool
    ) -> list[tuple[str, PlacementTable | None]]:
        """The orders that the queue may have: one, or several for a queue out of order. ``logical``: where that puts it."""
        if not parts:
            return [(IN_ORDER, None)]
        columns = np.concatenate(parts, axis=1)
        columns = columns[:, np.argsort(columns[2], kind="stable")]
        follows = columns[0, 1:] == columns[0, :-1] + columns[1, :-1]
        used_up = (columns[2] == columns[3]).any()
        if follows.all() and not used_up and logical is None:
            return [(IN_ORDER, None)]
        if self.task.unread and used_up:
            return [(SKIPPED, None)]
        if self.task.unread:
            # With part of the log unread, a jump up may be none; nothing is known about a fall.
            fine = follows | (self._is_between(columns) & (columns[0, 1:] > columns[0, :-1]))
            return [(IN_ORDER, None)] if fine.all() else [(SKIPPED, None)]
        runs = [Run(*run) for run in columns.T.tolist()]

        def table(placement: Placement) -> PlacementTable:
            return PlacementTable(placement.kept, placement.fills, waits)

        if follows.all():
            # Where a record names a light queue twice, the units behind it stand before the offsets that they name. In logical
            # order there may be units before the first record, in the place of lost ones.
            return [(IN_ORDER, table(order_broker(runs, 0))), *([(LOGICAL, logical)] if logical else [])]
        orders: list[tuple[str, PlacementTable | None]] = [(BROKER, table(order_broker(runs, 0)))]
        if logical is not None:
            orders.insert(0, (LOGICAL, logical))
        # A deleted topic takes its queues' files along: there is only what a broker dispatched since then.
        falls = [k for k in range(1, len(runs)) if runs[k].first < runs[k - 1].stop]
        if falls:
            first = found.first_offset(self.task.log[0])
            anew = {falls[-1], *(k for k in falls if runs[k].phy_offset == first)}
            orders += [(REMADE, table(order_broker(runs[k:], 0))) for k in sorted(anew)]
        return orders

    def _is_between(self, columns: Int64s) -> npt.NDArray[np.bool_]:
        """For each pair of neighbouring runs whether an unread stretch of the log lies between them."""
        starts = np.array([low for low, _ in self.task.unread], np.int64)
        between: npt.NDArray[np.bool_] = np.searchsorted(starts, columns[3, :-1]) < np.searchsorted(starts, columns[2, 1:])
        return between

    def _finish(
        self, queues: dict[tuple[bytes, int], _Queue], result: QueuesResult, heads: RecordHeads,
        odd: Placements[PlacementTable],
    ) -> None:  # fmt: skip
        for key, queue in sorted(queues.items()):
            if queue.checks is None:
                self._open(key, queue, heads, odd)
            self._close(key, queue, result)
        queues.clear()

    def _close(self, key: tuple[bytes, int], queue: _Queue, result: QueuesResult) -> None:
        assert queue.checks is not None
        assert queue.files is not None
        for order, check, _ in queue.checks:
            if order != SKIPPED:
                check.finish()
        # The order that fits best; of two equal ones, that of a build.
        order, check, _ = min(queue.checks, key=lambda c: c[1].tally.total if c[0] != SKIPPED else 0)
        empty = queue.files.empty_end()
        if empty is not None and self.task.opens_empty:
            result.counts[EMPTY_ENDS] += 1  # its own dispatcher leaves such files
            empty = None
        result.add(key, check, queue.files, order, queue.listed, self.task, empty)


def _waits(name: bytes) -> bool:
    """Whether a broker delivers the messages of the topic itself."""
    return name.decode("utf-8", "surrogateescape") in WAITING_TOPICS


def _without_offsets(offset_of: OffsetOf) -> OffsetOf:
    """The same, but -1 for each record: queue offsets do not count."""

    def known(phy_offset: int) -> int | None:
        return None if offset_of(phy_offset) is None else -1

    return known
