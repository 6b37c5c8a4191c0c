"""Join scheduled messages with their delivered copies, in tasks."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.delay.evidence import DECIDED, EVIDENCE, HALF, SCHEDULED, TIMED, Rows
from rocketmq_reindex.storage_format.delay.waiting import OPEN, SETTLED, UNCLEAR, join, last_check
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------------- join
# Reduce the evidence of delayed messages to what was delivered of each queue, and files of what was not.


@dataclass
class JoinedResult(handover.TaskResult):
    """What the records of one bucket say."""

    delivered: list[list[int]]
    """of each level's queue: [queue id, highest queue offset that was delivered, messages delivered]"""
    part: str
    """path of a file of EVIDENCE: the SCHEDULED and TIMED without a copy, by kind, queue and queue offset; "" for none"""
    unclear: list[int]
    """physical offsets of those of which the log does not tell whether they were delivered"""
    timer_end: list[int]
    """queue offset, physical offset and size of the last record of the timer topic; empty for none"""
    passed: int
    """highest queue offset of a half message of which there is a later copy, or that was given up; -1 for none"""
    halves: list[Any]
    """[path, count] of a file of int64 (``_halves``), empty for none"""
    last_check: list[int]
    """as ``storage_format.delay.waiting.last_check``"""


@dataclass(frozen=True)
class JoinDelayed:
    """Reduces rows of DELAYED to results (``JoinedResult``), one for each bucket."""

    staging: StagingFolder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cells in handover.by_bucket(batches):
            yield handover.batch([self._joined(np.concatenate([np.frombuffer(cell.data, EVIDENCE) for cell in cells]))])

    def _joined(self, rows: Rows) -> JoinedResult:
        rows, state = join(rows)
        kind, offset = rows["kind"], rows["queue_offset"]
        delivered = (kind == SCHEDULED) & (state == SETTLED)
        queues = np.unique(rows["queue"][delivered]).tolist()
        delivered_by_queue = {queue: offset[delivered & (rows["queue"] == queue)] for queue in queues}
        waiting = rows[((kind == SCHEDULED) | (kind == TIMED)) & (state != SETTLED)]
        part = ""
        if len(waiting):
            part = files.join(self.staging.plans, f"delayed-{uuid.uuid4().hex}")
            waiting = waiting[np.lexsort((waiting["queue_offset"], waiting["queue"], waiting["kind"]))]
            files.write_bytes(self.staging.temporary, part, [waiting.tobytes()])
        timers = rows[kind == TIMED]
        last = timers[np.argmax(timers["queue_offset"])] if len(timers) else None
        passed = offset[(kind == HALF) & (state != OPEN)]
        newest = np.sort(offset[(kind == HALF) & (state == OPEN)])
        return JoinedResult(
            [[queue, int(offsets.max()), len(offsets)] for queue, offsets in delivered_by_queue.items()],
            part,
            rows["phy_offset"][state == UNCLEAR].tolist(),
            [] if last is None else [int(last[name]) for name in ("queue_offset", "phy_offset", "size")],
            int(passed.max()) if len(passed) else -1,
            self._halves(newest, offset[kind == DECIDED]),
            list(last_check(rows)),
        )

    def _halves(self, newest: npt.NDArray[np.int64], decided: npt.NDArray[np.int64]) -> list[Any]:
        """Write queue offsets: ``newest`` ascending, of half messages without a newer copy, and those that op messages name."""
        if not len(newest) + len(decided):
            return []
        path = files.join(self.staging.plans, f"halves-{uuid.uuid4().hex}")
        files.write_bytes(self.staging.temporary, path, [newest.tobytes(), decided.tobytes()])
        return [path, len(newest)]


# ---------------------------------------------------------------------------------------------------------------- first pending
# Find the first half message that still waits for its producer, among the results of all buckets.

_WINDOW: Final = 1 << 26
"""Queue offsets that are looked at at once, a byte each"""
_WINDOWS_MAX: Final = 64
"""More of them hold offsets that no broker has given: then the search ends early, which loses no message."""


@dataclass(frozen=True)
class FirstPending:
    """Finds the lowest queue offset of a half message of which there is no newer copy, and which no op message names.

    ``plan`` is the path of a plan of [path, count]: files that JoinDelayed wrote. Half messages from ``end`` on are not looked
    at. The one task answers with the offset, or with ``end``.
    """

    plan: str
    end: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in handover.numbers(batches):
            yield handover.texts_batch([str(self.first())])

    def first(self) -> int:
        """Return the queue offset of the first pending message."""
        low = -1
        for _ in range(_WINDOWS_MAX):
            above = (offsets_above[np.searchsorted(offsets_above, low) :] for offsets_above in self._newest())
            low = min((int(offsets_above[0]) for offsets_above in above if len(offsets_above)), default=self.end)
            if low >= self.end:
                return self.end
            pending = np.zeros(min(_WINDOW, self.end - low), np.bool_)
            for offsets in self._newest():
                pending[_within(offsets, low, len(pending))] = True
            for offsets in self._decided():
                pending[_within(offsets, low, len(pending))] = False
            if pending.any():
                return low + int(np.argmax(pending))
            low += len(pending)
        return low

    def _newest(self) -> Iterator[npt.NDArray[np.int64]]:
        for path, count in handover.read_plan(self.plan):
            with files.Reader(path) as reader:
                yield np.frombuffer(reader.read(0, 8 * count), np.int64)

    def _decided(self) -> Iterator[npt.NDArray[np.int64]]:
        for path, count in handover.read_plan(self.plan):
            with files.Reader(path) as reader:
                yield np.frombuffer(reader.read(8 * count, reader.size() - 8 * count), np.int64)


def _within(offsets: npt.NDArray[np.int64], low: int, count: int) -> npt.NDArray[np.int64]:
    """Return the offsets that lie in [low, low + count), counted from ``low``."""
    inside: npt.NDArray[np.int64] = offsets[(offsets >= low) & (offsets < low + count)] - low
    return inside
