"""Apply a placement (``queue.order.Placement``) to the units of a queue, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.units import BATCH_COUNT_MAX

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64] | Sequence[Sequence[int]]
"""``Placement.kept`` or ``Placement.fills``, or all their numbers in one row"""

UNREADABLE_SIZE: Final = 1


def kept_at(kept: Int64s, phy_offsets: Int64s) -> list[list[int]]:
    """The rows of ``kept`` that units at these physical offsets, which ascend, can belong to. ``kept``: int64 (n, 5)."""
    if not len(phy_offsets):
        return []
    low = int(np.searchsorted(kept[:, 3], phy_offsets[0], side="right"))
    high = int(np.searchsorted(kept[:, 2], phy_offsets[-1], side="right"))
    rows: list[list[int]] = kept[low:high].tolist()
    return rows


class PlacementTable:
    """The placement of a plain queue, applied to its units block by block.

    ``waiting``: the queue is of a topic from which the broker itself delivers (``names.WAITING_TOPICS``): a new message for
    each unit. So a fill gets a size at which no message can be read: ``ScheduleMessageService``, ``TimerMessageStore`` and
    ``TransactionalMessageServiceImpl`` pass over it. In any other topic that would lose messages, as a client drops what
    follows in the batch.
    """

    def __init__(self, kept: Rows, fills: Rows, waiting: bool = False) -> None:
        self._waiting = waiting
        self._kept = np.array(kept, dtype=np.int64).reshape(-1, 5)
        self._fills = np.array(fills, dtype=np.int64).reshape(-1, 3)
        self._fills = self._fills[np.argsort(self._fills[:, 2], kind="stable")]

    def apply(self, units: Int64s) -> Int64s:
        """The units that stand, with their positions in place of queue offsets, and those that fill gaps.

        ``units``: int64 (UNIT_COLUMNS, n), ascending by physical offset.
        """
        found = [units[:, :0]]
        for first, rows, low, end, shift in kept_at(self._kept, units[1]):
            start, stop = np.searchsorted(units[1], [low, end])
            part = units[:, start:stop]
            part = part[:, (part[0] >= first) & (part[0] < first + rows)].copy()
            part[0] += shift
            found.append(part)
        placed = np.concatenate(found, axis=1)
        sources = self._fills[:, 2]
        if len(sources):
            at = np.minimum(np.searchsorted(sources, placed[0]), len(sources) - 1)
            for k in np.flatnonzero(sources[at] == placed[0]).tolist():
                first, rows, _ = self._fills[at[k]].tolist()
                filling = np.repeat(placed[:, k : k + 1], rows, axis=1)
                filling[0] = np.arange(first, first + rows)
                if self._waiting:
                    filling[2] = UNREADABLE_SIZE
                found.append(filling)
        return np.concatenate(found, axis=1)


class BatchPlacement:
    """The placement of a batch queue, applied to its units block by block.

    A consumer whose position lies in a gap would get the unit below it again and again (``BatchConsumeQueue.binarySearch``
    takes the nearest below), so a gap is filled: units that repeat the next record, each for as many offsets as it may span.
    """

    def __init__(self, kept: Rows, fills: Rows) -> None:
        self._kept = np.array(kept, dtype=np.int64).reshape(-1, 5)
        rows = np.array(fills, dtype=np.int64).reshape(-1, 3).tolist()
        self._fills = {source: (first, offsets) for first, offsets, source in rows}

    def apply(self, units: Int64s) -> Int64s:
        """The units that stand, each behind those that fill the gap before it.

        ``units``: int64 (BATCH_COLUMNS, n), ascending by physical offset.
        """
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
