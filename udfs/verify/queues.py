"""Compare the files of ConsumeQueues, plain and batch ones, with the log: one task gets all of a queue."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.queues import QueueView, UnitChecker
from rocketmq_reindex.storage_format.layouts import BATCH_QUEUES, QUEUES
from rocketmq_reindex.storage_format.queue import cells, consume_queue, order as queue_order, placement as queue_placement
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, WAITING_TOPICS
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import Placements
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.scan.extended import IS_LIGHT, OF_LITE, ExtFiles
from rocketmq_reindex.udfs.staging import BucketsPosition, StagingFolder
from rocketmq_reindex.udfs.verify import queue_files, queue_tasks
from rocketmq_reindex.udfs.verify.database import RowOfDatabaseQueue
from rocketmq_reindex.udfs.verify.queue_tasks import FILES_FIRST, IN_DATABASE, RUNS_NEXT

# ----------------------------------------------------------------------------------------------------------------------- queues
# Compare the files of ConsumeQueues with the units of the log: one task gets all of a queue, in the order of the log.

Int64s = npt.NDArray[np.int64]
OffsetOf = Callable[[int], int | None]
"""The queue offset of the record at a phy_offset: None without a record, -1 for one of another queue"""


Slots = queue_files.QueueFiles | RowOfDatabaseQueue
Orders = list[tuple[str, UnitChecker, queue_placement.PlacementTable | None]]
"""a check for each order that a queue may have"""


@dataclass
class _CheckedQueue:
    """One queue of a bucket while its rows come."""

    listed: bool = False
    """whether the store has a folder for it"""
    in_database: bool = False
    """whether it has an end in RocksDB, and no file"""
    table: list[tuple[int, int]] = field(default_factory=list)
    runs: list[Int64s] = field(default_factory=list)
    held: list[tuple[Slots, Orders]] = field(default_factory=list)
    """the queue, and behind it what is in RocksDB of one whose files are missing"""


@dataclass
class _Tools:
    """What the queues of a task are looked up with."""

    heads: queue_files.RecordHeads
    odd: Placements[queue_placement.PlacementTable]
    database: QueueDatabase | None = None


@dataclass(frozen=True)
class VerifyQueues:
    """Reduces rows of UNITS (files, runs and units of ``VerifyScan`` and ``ListQueues``) to one result (``QueuesResult``).

    A queue out of order is compared with each order that it may have; the one that fits best counts. ``placements`` is the
    plan of where ``--queue-order logical`` puts their units (``PlanWriter``), or "". ``mean`` is as in ``BucketsPosition``.
    """

    staging: StagingFolder
    mean: int
    task: queue_tasks.QueueTask
    placements: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda key, kept, fills: queue_placement.PlacementTable(kept, fills, _waits(key[0])))
        tools = _Tools(queue_files.RecordHeads(self.task.segments), odd)
        if not self.task.database:
            yield from self._compared(batches, tools)
            return
        with contextlib.closing(QueueDatabase(self.task.database)) as tools.database:
            yield from self._compared(batches, tools)

    def _compared(self, batches: Iterator[pa.RecordBatch], tools: _Tools) -> Iterator[pa.RecordBatch]:
        result = queue_tasks.QueuesResult()
        queues: dict[tuple[bytes, int], _CheckedQueue] = {}
        position = BucketsPosition(self.staging, "queues", self.mean)
        for cells_of_bucket in handover.by_bucket(batches):
            for cell in cells_of_bucket:
                columns = cells.UNIT_COLUMNS if cell.sort_key in (FILES_FIRST, RUNS_NEXT) else self.task.columns
                for name, queue_id, rows in cells.unpack(cell.data, columns).parts():
                    queue = queues.setdefault((name, queue_id), _CheckedQueue())
                    if cell.sort_key == FILES_FIRST:
                        if rows[IN_DATABASE].any():
                            queue.in_database = True
                        else:
                            queue.listed = True
                            queue.table += zip(*rows[:2].tolist(), strict=True)
                    elif cell.sort_key == RUNS_NEXT:
                        queue.runs.append(rows)
                    else:
                        self._take((name, queue_id), queue, rows, tools)
                        position.moved(cell.bucket, rows.shape[1])
            self._finish(queues, result, tools)
        position.ended()
        yield handover.batch([result])

    def _take(self, key: tuple[bytes, int], queue: _CheckedQueue, rows: Int64s, tools: _Tools) -> None:
        if not queue.held:
            self._open(key, queue, tools)
        for held, checks in queue.held:
            for order, check, table in checks:
                if order in queue_tasks.NOT_COMPARED:
                    continue
                if isinstance(held, RowOfDatabaseQueue):
                    check.expect(rows[:, self._due(key[0], rows, held, tools)])
                elif table is None:
                    check.expect(rows)
                else:
                    placed = table.apply(rows)
                    check.expect(placed[:, np.argsort(placed[0], kind="stable")])

    def _due(self, topic: bytes, rows: Int64s, held: RowOfDatabaseQueue, tools: _Tools) -> npt.NDArray[np.bool_]:
        """Return which units of a queue are compared with RocksDB: those that it must have, and others that it has."""
        lite = self.task.beside.lite if self.task.beside is not None else None
        due = np.ones(rows.shape[1], np.bool_)
        if lite is None or topic.decode("utf-8", "surrogateescape") in lite:
            return due
        if self.task.filters is not None:
            due[:] = rows[IS_LIGHT] == OF_LITE
        else:
            due[:] = [head is not None and head.topic in lite for head in tools.heads.of_all(rows[1].tolist())]
        others = np.flatnonzero(~due)
        due[others] = held.has(rows[0, others])
        return due

    def _slots(self, key: tuple[bytes, int], queue: _CheckedQueue, tools: _Tools) -> list[Slots]:
        """Return the queue where a broker has it, and what RocksDB has of one whose files are missing."""
        beside, is_light = self.task.beside, key[0].startswith(LMQ_PREFIX.encode())
        if tools.database is None or queue.table:
            return [self._files_of(key, queue)]
        row = RowOfDatabaseQueue(tools.database, key)
        # Files of a queue of which the log has nothing may be gone.
        if beside is None or (is_light and beside.light_alone) or (queue.in_database and not queue.runs):
            return [row]
        return [self._files_of(key, queue), *([row] if queue.in_database else [])]

    def _files_of(self, key: tuple[bytes, int], queue: _CheckedQueue) -> queue_files.QueueFiles:
        task, name = self.task, key[0].decode("utf-8", "surrogateescape")
        ext = ExtFiles(files.join(task.ext, name, str(key[1]))) if task.ext else None
        bits = task.filters.bit_map_size(name) if task.filters else 0
        return queue_files.QueueFiles(task.folder, QUEUES, key, queue.table, task.file_size, ext=ext, bits=bits)

    def _open(self, key: tuple[bytes, int], queue: _CheckedQueue, tools: _Tools) -> None:
        queue.held = [(held, self._checks(key, queue, held, tools)) for held in self._slots(key, queue, tools)]
        queue.runs = []

    def _checks(self, key: tuple[bytes, int], queue: _CheckedQueue, held: Slots, tools: _Tools) -> Orders:
        task, name = self.task, key[0].decode("utf-8", "surrogateescape")
        in_database = isinstance(held, RowOfDatabaseQueue)

        def offset_of(phy_offset: int) -> int | None:
            head = tools.heads.at(phy_offset)
            if head is None:
                return None
            return head.queue_offset if (head.topic, head.queue_id) == (name, key[1]) else -1

        view = QueueView(held.read, held.spans, held.data_from, offset_of, held.path, task.log, task.unread, stale=task.stale,
                         extended=task.extended(held, name),
                         extended_kind="queue-unit-time" if in_database else "queue-ext")  # fmt: skip
        checks: Orders = []
        logical = tools.odd.get(key) if queue.runs and not in_database else None
        for order, table in self._orders(queue.runs, held, logical, _waits(key[0])):
            # Where a broker appends in the wrong place, a unit does not stand at its record's offset.
            order_view = (
                view
                if order not in (queue_tasks.BROKER, queue_tasks.REMADE)
                else dataclasses.replace(view, look=_without_offsets(offset_of))
            )
            checks.append((order, UnitChecker(order_view), table))
        return checks

    def _orders(
        self,
        parts: list[Int64s],
        held: Slots,
        logical: queue_placement.PlacementTable | None,
        waits: bool,
    ) -> list[tuple[str, queue_placement.PlacementTable | None]]:
        """Return the orders that the queue may have: one, or several for a queue out of order. ``logical``: where that puts
        it."""
        if not parts:
            return [(queue_tasks.IN_ORDER, None)]
        columns = np.concatenate(parts, axis=1)
        columns = columns[:, np.argsort(columns[2], kind="stable")]
        follows = columns[0, 1:] == columns[0, :-1] + columns[1, :-1]
        used_up = (columns[2] == columns[3]).any()
        if isinstance(held, RowOfDatabaseQueue):
            # Each unit stands at its record's own queue offset, also behind a gap.
            rises = (columns[0, 1:] >= columns[0, :-1] + columns[1, :-1]).all() and not used_up
            return [(queue_tasks.IN_ORDER if rises else queue_tasks.UNORDERED, None)]
        if follows.all() and not used_up and logical is None:
            return [(queue_tasks.IN_ORDER, None)]
        if self.task.unread and used_up:
            return [(queue_tasks.SKIPPED, None)]
        if self.task.unread:
            # With part of the log unread, a jump up may be none; nothing is known about a fall.
            fine = follows | (self._is_between(columns) & (columns[0, 1:] > columns[0, :-1]))
            return [(queue_tasks.IN_ORDER, None)] if fine.all() else [(queue_tasks.SKIPPED, None)]
        runs = [queue_order.Run(*run) for run in columns.T.tolist()]

        def table(placement: queue_order.Placement) -> queue_placement.PlacementTable:
            return queue_placement.PlacementTable(placement.kept, placement.fills, waits)

        if follows.all():
            # Where a record names a light queue twice, the units behind it stand before the offsets that they name. In logical
            # order there may be units before the first record, in the place of lost ones.
            return [
                (queue_tasks.IN_ORDER, table(queue_order.order_broker(runs, 0))),
                *([(queue_tasks.LOGICAL, logical)] if logical else []),
            ]
        orders: list[tuple[str, queue_placement.PlacementTable | None]] = [
            (queue_tasks.BROKER, table(queue_order.order_broker(runs, 0)))
        ]
        if logical is not None:
            orders.insert(0, (queue_tasks.LOGICAL, logical))
        # A deleted topic takes its queues' files along: there is only what a broker dispatched since then.
        falls = [k for k in range(1, len(runs)) if runs[k].first < runs[k - 1].stop]
        if falls:
            first = held.first_offset(self.task.log[0])
            anew = {falls[-1], *(k for k in falls if runs[k].phy_offset == first)}
            orders += [(queue_tasks.REMADE, table(queue_order.order_broker(runs[k:], 0))) for k in sorted(anew)]
        return orders

    def _is_between(self, columns: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each pair of neighbouring runs whether an unread stretch of the log lies between them."""
        starts = np.array([low for low, _ in self.task.unread], np.int64)
        between: npt.NDArray[np.bool_] = np.searchsorted(starts, columns[3, :-1]) < np.searchsorted(starts, columns[2, 1:])
        return between

    def _finish(self, queues: dict[tuple[bytes, int], _CheckedQueue], result: queue_tasks.QueuesResult, tools: _Tools) -> None:
        for key, queue in sorted(queues.items()):
            if not queue.held:
                self._open(key, queue, tools)
            (held, checks), *others = queue.held
            order, check = self._finished(held, checks)
            empty = held.empty_end()
            if empty is not None and self.task.opens_empty:
                result.counts[queue_tasks.EMPTY_ENDS] += 1  # its own dispatcher leaves such files
                empty = None
            listed = queue.in_database if isinstance(held, RowOfDatabaseQueue) else queue.listed
            result.add(key, check, held, order, listed, self.task, empty)
            for other, checks in others:
                order, check = self._finished(other, checks)
                if order not in queue_tasks.NOT_COMPARED:
                    result.add_beside(check.tally)
        queues.clear()

    def _finished(self, held: Slots, checks: Orders) -> tuple[str, UnitChecker]:
        """Return the order that fits best, and its check; of two equal ones, that of a build."""
        for order, check, _ in checks:
            if order not in queue_tasks.NOT_COMPARED:
                check.finish()
        order, check, _ = min(checks, key=lambda c: c[1].tally.total if c[0] not in queue_tasks.NOT_COMPARED else 0)
        if order not in queue_tasks.NOT_COMPARED:
            held.check_end(check.tally, self.task.log[0])
        return order, check


def _waits(name: bytes) -> bool:
    """Return whether a broker delivers the messages of the topic itself."""
    return name.decode("utf-8", "surrogateescape") in WAITING_TOPICS


def _without_offsets(offset_of: OffsetOf) -> OffsetOf:
    """Return a look-up that gives -1 for each record: queue offsets do not count."""

    def known(phy_offset: int) -> int | None:
        return None if offset_of(phy_offset) is None else -1

    return known


# ---------------------------------------------------------------------------------------------------------------------- batches
# Compare the files of batch ConsumeQueues with the records of the log, one unit for each.

Check = tuple[str, UnitChecker, queue_placement.BatchPlacement | None]
"""A comparison with one order, and how that order places units."""
_FIELDS: Final = len(consume_queue.BATCH_UNIT.names or ())


@dataclass
class _Batch:
    """One queue of a bucket while its rows come. Each order is checked by itself, since fills and empty units differ."""

    listed: bool = False
    table: list[tuple[int, int]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    files: queue_files.QueueFiles | None = None
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
    task: queue_tasks.QueueTask
    placements: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda _, kept, fills: queue_placement.BatchPlacement(kept, fills))
        result, heads = queue_tasks.QueuesResult(), queue_files.RecordHeads(self.task.segments)
        queues: dict[tuple[bytes, int], _Batch] = {}
        position = BucketsPosition(self.staging, "batches", self.mean)
        for cells_of_bucket in handover.by_bucket(batches):
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
        yield handover.batch([result])

    @staticmethod
    def _take(queue: _Batch, units: Int64s, checks: list[Check]) -> None:
        for order, check, placement in checks:
            dispatched = units if order == queue_tasks.BROKER else units[:, units[5] > 0]
            image = consume_queue.batch_units(placement.apply(dispatched) if placement else dispatched)
            rows = np.empty((1 + _FIELDS, len(image)), np.int64)
            first = queue.start if check.next < 0 else check.next
            rows[0] = np.arange(first, first + len(image))
            for row, name in enumerate(consume_queue.BATCH_UNIT.names or (), 1):
                rows[row] = image[name]
            check.expect(rows)

    def _opened(
        self,
        key: tuple[bytes, int],
        queue: _Batch,
        heads: queue_files.RecordHeads,
        odd: Placements[queue_placement.BatchPlacement],
    ) -> list[Check]:
        """Return the checks of a queue, one for each order that it may have; all rows of its files have come."""
        if queue.checks:
            return queue.checks
        task = self.task
        queue.files = held = queue_files.QueueFiles(
            task.folder, BATCH_QUEUES, key, queue.table, task.file_size, consume_queue.BATCH_UNIT
        )
        queue.start = _first_left(held, task.log[0])

        def offset_of(phy_offset: int) -> int | None:
            return None if heads.at(phy_offset) is None else -1

        spans = tuple((max(low, queue.start), high) for low, high in held.spans if high > queue.start)
        view = QueueView(held.read, spans, held.data_from, offset_of, held.path, task.log, task.unread, batch=True,
                         stale=task.stale)  # fmt: skip
        placement = odd.get(key)
        # A broker also writes units without a message.
        queue.checks = [
            (queue_tasks.LOGICAL if placement else queue_tasks.IN_ORDER, UnitChecker(view), placement),
            (queue_tasks.BROKER, UnitChecker(view), None),
        ]
        return queue.checks

    def _close(self, key: tuple[bytes, int], queue: _Batch, result: queue_tasks.QueuesResult, checks: list[Check]) -> None:
        assert queue.files is not None
        for _, check, _ in checks:
            check.finish()
        order, check, _ = min(checks, key=lambda c: c[1].tally.total)
        result.add(key, check, queue.files, order, queue.listed, self.task)


def _first_left(held: queue_files.QueueFiles, log_start: int) -> int:
    """Return the position of the first unit whose record has not expired: the units of the log begin there."""
    for low, high in held.spans:
        for position in range(low, high, 1 << 16):
            phy_offset, size = held.read(position, min(1 << 16, high - position))[:2]
            has_record = ~((phy_offset >= 0) & (size >= RECORD_MIN) & (phy_offset + size <= log_start))
            if has_record.any():
                return position + int(np.argmax(has_record))
    return held.end
