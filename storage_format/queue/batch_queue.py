"""Make batch ConsumeQueue files (RocketMQ ``BatchConsumeQueue``, 5.x) from units. The layout: ``queue.units``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.cells import BATCH_RUN_COLUMNS
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, NOT_COMPACTED
from rocketmq_reindex.storage_format.walk.state import BatchArrays

BATCH_UNIT: Final = BATCH_LAYOUT.dtype
_COLUMNS: Final = ("base", "phy_offset", "size", "tags_code", "store_time", "count")
"""of a unit, in the order of ``cells.BATCH_COLUMNS``"""

Int64s = npt.NDArray[np.int64]


def by_queue(batches: BatchArrays, queues: int) -> tuple[Int64s, Int64s]:
    """The batch units of a block, grouped by queue: (int64 (BATCH_COLUMNS, n), bounds).

    Queue k has the rows ``bounds[k]:bounds[k + 1]``.
    """
    order = np.argsort(batches.queue, kind="stable")
    columns = np.stack(
        [
            column[order].astype(np.int64)
            for column in (
                batches.base,
                batches.phy_offset,
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
    """The runs of one queue, int64 (BATCH_RUN_COLUMNS, n): in a run each unit's offsets begin where those of the one before
    end.

    ``columns``: int64 (BATCH_COLUMNS, n). Units without a message are in no run. A run of two is given as two runs of one, as
    in ``QueueBlock.runs``.
    """
    columns = columns[:, columns[5] > 0]
    base, phy_offset, size, count = columns[0], columns[1], columns[2], columns[5]
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
    return np.stack([base[starts], messages, phy_offset[starts], phy_offset[ends - 1] + size[ends - 1], ends - starts])


def batch_units(columns: Int64s) -> npt.NDArray[np.void]:
    """Units as they stand in the file, of dtype BATCH_UNIT. ``columns``: int64 (BATCH_COLUMNS, n)."""
    image = np.zeros(columns.shape[1], dtype=BATCH_UNIT)
    for name, column in zip(_COLUMNS, columns, strict=True):
        image[name] = column
    image["compacted"] = NOT_COMPACTED
    return image
