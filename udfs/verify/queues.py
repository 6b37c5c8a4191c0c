"""Compare the files of ConsumeQueues with the units of the log: all of a queue comes to one task, in the order of the log."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Example, Tally
from rocketmq_reindex.storage_format.checks.queues import QueueView, UnitChecker
from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC, escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.logical_order import order_logical
from rocketmq_reindex.storage_format.queue.order import Placement, RolledBack, order_broker
from rocketmq_reindex.storage_format.queue.placement import PlacementTable
from rocketmq_reindex.storage_format.queue.runs import Run, join_runs
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.verify.look import LogLook
from rocketmq_reindex.udfs.verify.queue_files import QueueFiles
from rocketmq_reindex.udfs.verify.scan import AT_FILES, AT_RUNS

Int64s = npt.NDArray[np.int64]
QUEUES_TOLD: Final = 1000
"""Queues that are told one by one: those with differences, then those with the most units."""
MISSING: Final = "queue-unit-missing"
IN_ORDER, LOGICAL, BROKER, REMADE, SKIPPED = "in order", "logical", "broker", "made anew", "skipped"
EMPTY_ENDS: Final = "empty ends"
IDLE: Final = "idle"
"""Counts of queues: with an empty file at their end; with units of expired records alone."""
FOLDER: Final = "consumequeue"


@dataclass(frozen=True)
class QueueTask:
    """What a task needs of the store. ``folder`` is that of the queues; ``holes`` are offsets of damage; ``unread`` what a
    sample left out; ``log`` where the log begins and ends."""

    folder: str
    file_size: int
    segments: tuple[Segment, ...]
    log: tuple[int, int]
    holes: tuple[int, ...]
    unread: tuple[tuple[int, int], ...] = ()
    max_fill: int = 100_000
    old_broker: bool = False
    rolled_back: RolledBack | None = None
    """where old records may lie (``order_logical``)"""
    stale: tuple[int, int] | None = None
    """old records behind the log's end"""


@dataclass
class _Queue:
    """One queue of a bucket while its rows come."""

    listed: bool = False
    """whether the store has a folder for it"""
    table: list[tuple[int, int]] = field(default_factory=list)
    runs: list[Int64s] = field(default_factory=list)
    checks: list[tuple[str, UnitChecker, PlacementTable | None, Placement | None]] | None = None
    files: QueueFiles | None = None


@dataclass
class QueueWord:
    """What a task says: differences, counts, and the queues with the most units."""

    tally: Tally = field(default_factory=Tally)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    queues: list[tuple[bool, int, str, dict[str, Any]]] = field(default_factory=list)

    def judge(
        self, key: tuple[bytes, int], checked: UnitChecker, found: QueueFiles, order: str, listed: bool, task: QueueTask,
        empty: int | None = None,
    ) -> None:  # fmt: skip
        """One queue, by the order that was taken for it; ``listed``: it has a folder; ``empty``: first slot of an empty end."""
        name = escape(key[0].decode("utf-8", "surrogateescape"))
        tally = Tally() if order == SKIPPED else checked.tally
        if empty is not None:
            tally.add("queue-file-empty", 1, found.path(empty), empty, "holds no unit, and the queue goes up to it")
        lost = tally.counts.get(MISSING, 0)
        if lost and not len(found):
            what = "file" if listed else "folder"
            text = f"queue has no {what}: {counted(lost, 'unit')} from {checked.named(checked.first)} on"
            tally.replace(MISSING, Example(found.told, checked.first, text))
        self.counts["queues"] += 1
        self.counts["differing"] += tally.total > 0
        self.counts[order] += 1
        self.counts["units"] += checked.units
        self.counts["there"] += checked.there
        self.counts["stale"] += checked.stale
        if not checked.units and task.log[0] > 0 and not task.unread:
            self.counts[IDLE] += found.holds_expired(task.log[0])
        self.tally.merge(tally)
        entry = {
            "topic": name, "queue": key[1], "units": checked.units, "there": checked.there, "first": checked.first,
            "end": checked.next, "folder": listed, "files": len(found), "order": order, "differences": tally.total,
            "kinds": tally.counts, "first_bad": checked.first_bad,
        }  # fmt: skip
        told = (tally.total > 0, checked.units, f"{name}/{key[1]}", entry)
        if len(self.queues) < QUEUES_TOLD:
            heapq.heappush(self.queues, told)
        else:
            heapq.heappushpop(self.queues, told)

    def to_json(self) -> str:
        queues = [entry for *_, entry in self.queues]
        return json.dumps({"tally": self.tally.to_json(), "counts": dict(self.counts), "queues": queues})


@dataclass(frozen=True)
class VerifyQueues:
    """A queue out of order is compared with both orders, and judged by the one that fits better."""

    task: QueueTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        word, look = QueueWord(), LogLook(self.task.segments)
        queues: dict[tuple[bytes, int], _Queue] = {}
        for cells_of_bucket in schemas.by_bucket(batches):
            for _, place, data in cells_of_bucket:
                for name, queue_id, rows in cells.unpack(data, cells.UNIT_COLUMNS).parts():
                    queue = queues.setdefault((name, queue_id), _Queue())
                    if place == AT_FILES:
                        queue.listed = True
                        queue.table += zip(*rows[:2].tolist(), strict=True)
                    elif place == AT_RUNS:
                        queue.runs.append(rows)
                    else:
                        self._take((name, queue_id), queue, rows, look)
            self._finish(queues, word, look)
        yield schemas.result([word.to_json()])

    def _take(self, key: tuple[bytes, int], queue: _Queue, rows: Int64s, look: LogLook) -> None:
        if queue.checks is None:
            self._open(key, queue, look)
        for order, check, table, _ in queue.checks or ():
            if order == SKIPPED:
                continue
            if table is None:
                check.expect(rows)
            else:
                placed = table.apply(rows)
                check.expect(placed[:, np.argsort(placed[0], kind="stable")])

    def _open(self, key: tuple[bytes, int], queue: _Queue, look: LogLook) -> None:
        task = self.task
        queue.files = found = QueueFiles(task.folder, FOLDER, key, queue.table, task.file_size)
        name = key[0].decode("utf-8", "surrogateescape")

        def seen(place: int) -> int | None:
            record = look.record(place)
            if record is None:
                return None
            return record.queue_offset if (record.topic, record.queue_id) == (name, key[1]) else -1

        view = QueueView(found.read, found.spans, found.data_from, seen, found.path, task.log, task.unread, stale=task.stale)
        queue.checks = []
        for order, placement in self._orders(queue.runs, found):
            # Where a broker appends in the wrong place, a unit does not stand at its record's offset.
            mine = view if order not in (BROKER, REMADE) else dataclasses.replace(view, look=_other(seen))
            table = PlacementTable(placement.kept, placement.fills, name == SCHEDULE_TOPIC) if placement else None
            queue.checks.append((order, UnitChecker(mine), table, placement))
        queue.runs = []

    def _orders(self, parts: list[Int64s], found: QueueFiles) -> list[tuple[str, Placement | None]]:
        """The orders that the queue may have: one, or for a queue out of order some."""
        if not parts:
            return [(IN_ORDER, None)]
        columns = np.concatenate(parts, axis=1)
        columns = columns[:, np.argsort(columns[2], kind="stable")]
        follows = columns[0, 1:] == columns[0, :-1] + columns[1, :-1]
        used_up = (columns[2] == columns[3]).any()
        if follows.all() and not used_up:
            return [(IN_ORDER, None)]
        if self.task.unread and used_up:
            return [(SKIPPED, None)]
        if self.task.unread:
            # Who has not seen what lies between takes a jump up for none; of a fall nothing can be said.
            fine = follows | (self._is_between(columns) & (columns[0, 1:] > columns[0, :-1]))
            return [(IN_ORDER, None)] if fine.all() else [(SKIPPED, None)]
        runs = [Run(*run) for run in columns.T.tolist()]
        if follows.all():
            # Where a record names a light queue twice, the units behind it stand in front of the offsets that they name.
            return [(IN_ORDER, order_broker(runs, 0))]
        orders: list[tuple[str, Placement | None]] = [(BROKER, order_broker(runs, 0))]
        logical = order_logical(runs, self.task.holes, rolled_back=self.task.rolled_back)
        if logical.filled <= self.task.max_fill and len(join_runs(runs)) > 1:
            orders.insert(0, (LOGICAL, logical))
        # Topics are deleted with their queues' files: what a broker dispatched since then is all that is there.
        falls = [k for k in range(1, len(runs)) if runs[k].first < runs[k - 1].stop]
        if falls:
            first = found.first_place(self.task.log[0])
            anew = {falls[-1], *(k for k in falls if runs[k].phy_offset == first)}
            orders += [(REMADE, order_broker(runs[k:], 0)) for k in sorted(anew)]
        return orders

    def _is_between(self, columns: Int64s) -> npt.NDArray[np.bool_]:
        """Whether between two runs lies a stretch of the log that was not read."""
        starts = np.array([low for low, _ in self.task.unread], np.int64)
        between: npt.NDArray[np.bool_] = np.searchsorted(starts, columns[3, :-1]) < np.searchsorted(starts, columns[2, 1:])
        return between

    def _finish(self, queues: dict[tuple[bytes, int], _Queue], word: QueueWord, look: LogLook) -> None:
        for key, queue in sorted(queues.items()):
            if queue.checks is None:
                self._open(key, queue, look)
            self._close(key, queue, word)
        queues.clear()

    def _close(self, key: tuple[bytes, int], queue: _Queue, word: QueueWord) -> None:
        assert queue.checks is not None
        assert queue.files is not None
        name = escape(key[0].decode("utf-8", "surrogateescape"))
        for order, check, _, _ in queue.checks:
            if order != SKIPPED:
                check.finish()
        # The one that fits; of two that do, the one by which no record is out of line.
        order, check, _, placement = min(
            queue.checks, key=lambda c: (c[1].tally.total if c[0] != SKIPPED else 0, len(c[3].lost) if c[3] else 0)
        )
        empty = queue.files.empty_end()
        if empty is not None and self.task.old_broker:
            word.counts[EMPTY_ENDS] += 1  # its own dispatcher leaves such files
            empty = None
        word.judge(key, check, queue.files, order, queue.listed, self.task, empty)
        if order == LOGICAL and placement is not None:
            for place, _, offset in placement.lost:
                text = f"offset {place} of the log: queue offset {offset} of {name}/{key[1]} does not fit"
                word.tally.add("log-out-of-line", 1, "commitlog", place, text)


def _other(seen: Any) -> Any:
    """A look that does not tell queue offsets."""

    def look(place: int) -> int | None:
        return None if seen(place) is None else -1

    return look
