"""Reduce the evidence of delayed messages to what was delivered of each queue, and files of what was not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.delay.evidence import DECIDED, EVIDENCE, HALF, SCHEDULED, TIMED, Rows
from rocketmq_reindex.storage_format.delay.join import OPEN, SETTLED, UNCLEAR, join, last_check
from rocketmq_reindex.udfs import files, results, schemas
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder


@dataclass
class JoinedResult(Result):
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
    """as ``storage_format.delay.join.last_check``"""


@dataclass(frozen=True)
class JoinDelayed:
    """Reduces rows of DELAYED to results (``JoinedResult``), one for each bucket."""

    staging: StagingFolder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cells in schemas.by_bucket(batches):
            yield results.batch([self._joined(np.concatenate([np.frombuffer(cell.data, EVIDENCE) for cell in cells]))])

    def _joined(self, rows: Rows) -> JoinedResult:
        rows, state = join(rows)
        kind, offset = rows["kind"], rows["queue_offset"]
        done = (kind == SCHEDULED) & (state == SETTLED)
        queues = np.unique(rows["queue"][done]).tolist()
        mine = {queue: offset[done & (rows["queue"] == queue)] for queue in queues}
        left = rows[((kind == SCHEDULED) | (kind == TIMED)) & (state != SETTLED)]
        part = ""
        if len(left):
            part = files.join(self.staging.plans, f"delayed-{uuid.uuid4().hex}")
            left = left[np.lexsort((left["queue_offset"], left["queue"], left["kind"]))]
            files.write_bytes(self.staging.temporary, part, [left.tobytes()])
        timers = rows[kind == TIMED]
        last = timers[np.argmax(timers["queue_offset"])] if len(timers) else None
        passed = offset[(kind == HALF) & (state != OPEN)]
        newest = np.sort(offset[(kind == HALF) & (state == OPEN)])
        return JoinedResult(
            [[queue, int(found.max()), len(found)] for queue, found in mine.items()],
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
