"""Make batch ConsumeQueue files (RocketMQ ``BatchConsumeQueue``, 5.x) from units. The layout: ``queue.units``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.cells import BATCH_RUN_COLUMNS
from rocketmq_reindex.storage_format.queue.order import Rows, kept_at
from rocketmq_reindex.storage_format.queue.units import BATCH_COUNT_MAX, BATCH_LAYOUT, NOT_COMPACTED
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE as BATCH_UNIT_SIZE
from rocketmq_reindex.storage_format.walk.state import BatchArrays

BATCH_UNIT: Final = BATCH_LAYOUT.dtype
_COLUMNS: Final = ("base", "place", "size", "tags_code", "store_time", "count")
"""of a unit, in the order of ``cells.BATCH_COLUMNS``"""

Int64s = npt.NDArray[np.int64]


def by_queue(batches: BatchArrays, queues: int) -> tuple[Int64s, Int64s]:
    """Units of a block by queue: (columns as ``cells.BATCH_COLUMNS``, bounds); queue k's are ``bounds[k]:bounds[k + 1]``."""
    order = np.argsort(batches.queue, kind="stable")
    columns = np.stack(
        [
            column[order].astype(np.int64)
            for column in (
                batches.base,
                batches.place,
                batches.size,
                batches.tags_code,
                batches.store_time,
                batches.messages,
            )
        ]
    )
    bounds = np.zeros(queues + 1, np.int64)
    np.cumsum(np.bincount(batches.queue, minlength=queues), out=bounds[1:])
    return columns, bounds


def batch_runs(columns: Int64s) -> Int64s:
    """Stretches in which each unit begins where the one before ends, columns as ``cells.BATCH_RUN_COLUMNS`` says.

    Units without a message are in none. A stretch of just two is given as two of one, as ``QueueBlock.runs`` does.
    """
    columns = columns[:, columns[5] > 0]
    base, place, size, count = columns[0], columns[1], columns[2], columns[5]
    n = len(base)
    if n == 0:
        return np.zeros((BATCH_RUN_COLUMNS, 0), np.int64)
    first = np.ones(n, dtype=bool)
    first[1:] = base[1:] != base[:-1] + count[:-1]
    starts = np.flatnonzero(first)
    pairs = starts[np.diff(np.append(starts, n)) == 2]
    first[pairs + 1] = True
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], n)
    messages = base[ends - 1] + count[ends - 1] - base[starts]
    return np.stack([base[starts], messages, place[starts], place[ends - 1] + size[ends - 1], ends - starts])


class BatchPlacement:
    """What of a queue out of order stands, and what fills its gaps (``queue_order.Placement``), applied block by block.

    A consumer whose position lies in a gap would get the unit below it again and again (``BatchConsumeQueue.binarySearch``
    takes the nearest below), so a gap is filled: units that repeat the next record, each for as many offsets as it may span.
    """

    def __init__(self, kept: Rows, fills: Rows) -> None:
        self._kept = np.array(kept, dtype=np.int64).reshape(-1, 5)
        rows = np.array(fills, dtype=np.int64).reshape(-1, 3).tolist()
        self._fills = {source: (first, offsets) for first, offsets, source in rows}

    def place(self, units: Int64s) -> Int64s:
        """Units (``cells.BATCH_COLUMNS``, ascending by place) that stand, each after what fills the gap before it."""
        found = [units[:, :0]]
        for first, span, low, end, _ in kept_at(self._kept, units[1]):
            start, stop = np.searchsorted(units[1], [low, end])
            part = units[:, start:stop]
            part = part[:, part[0] < first + span].copy()
            # A later life of the topic may begin inside a batch: what comes before that is still served.
            part[5] = np.minimum(part[5], first + span - part[0])
            found.append(part)
        placed = np.concatenate(found, axis=1)
        sources = np.array(sorted(self._fills), dtype=np.int64)
        at = np.flatnonzero(np.isin(placed[0], sources))
        fills = [self._fill(placed[:, k : k + 1]) for k in at.tolist()]
        return np.insert(
            placed, np.repeat(at, [f.shape[1] for f in fills]), np.concatenate([units[:, :0], *fills], axis=1), axis=1
        )

    def _fill(self, unit: Int64s) -> Int64s:
        first, offsets = self._fills[int(unit[0, 0])]
        bases = np.arange(first, first + offsets, BATCH_COUNT_MAX)
        filling = np.repeat(unit, len(bases), axis=1)
        filling[0] = bases
        filling[5] = np.minimum(BATCH_COUNT_MAX, first + offsets - bases)
        return filling


def batch_units(columns: Int64s) -> npt.NDArray[np.void]:
    """Units as they stand in the file, from columns as ``cells.BATCH_COLUMNS`` says."""
    image = np.zeros(columns.shape[1], dtype=BATCH_UNIT)
    for name, column in zip(_COLUMNS, columns, strict=True):
        image[name] = column
    image["compacted"] = NOT_COMPACTED
    return image
