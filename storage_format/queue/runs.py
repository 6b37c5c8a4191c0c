"""Runs: stretches of consecutive queue offsets of one queue. Queue order is decided from them alone, without the records.

A queue whose runs join into one is in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

CONTINUED: Final = 3
"""A record is continued when the queue's next two records follow on it: a run of three."""


class Run(NamedTuple):
    """Records of one queue that lie one after another in it.

    ``first`` is the first queue offset, ``offsets`` how many there are, ``phy_offset`` where the first record begins, ``end``
    where the last one ends. A batch queue's records have several offsets each: ``batch_records`` counts them, 0 in any other
    queue.

    A run that ends where it begins has no record: the record before it named its light queue more than once. The broker's
    counter of 5.x goes up each time (``LmqDispatch.updateLmqOffsets``), but there is one unit, and the next stands right behind
    it (``ConsumeQueue.putMessagePositionInfo``). A broker that starts counts from the units again.
    """

    first: int
    offsets: int
    phy_offset: int
    end: int
    batch_records: int = 0

    @property
    def stop(self) -> int:
        """The queue offset behind the last one."""
        return self.first + self.offsets

    @property
    def records(self) -> int:
        """How many records the run has."""
        return 0 if self.phy_offset == self.end else self.batch_records or self.offsets

    @property
    def is_used_up(self) -> bool:
        """Whether the run is offsets without a record."""
        return self.phy_offset == self.end


def join_runs(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Runs in commitlog order, those that follow on each other together."""
    joined: list[Run] = []
    following = -1
    for run in runs:
        if joined and run.first != following:
            yield joined
            joined = []
        joined.append(run)
        following = run.first + run.offsets
    if joined:
        yield joined


def broken_at(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The runs that do not follow on the one before, or where one of the two has no record.

    ``columns``: int64 (4 or 5, n), the fields of ``Run`` of one queue in commitlog order. Returns numbers of runs, ascending.
    """
    broken = columns[0, 1:] != columns[0, :-1] + columns[1, :-1]
    empty = columns[2] == columns[3]
    at: npt.NDArray[np.intp] = np.flatnonzero(broken | empty[1:] | empty[:-1]) + 1
    return at


def fewer_runs(columns: npt.NDArray[np.int64]) -> list[Run]:
    """Runs from their columns (as for ``broken_at``); those that follow on each other are one, unless they are too short.

    A queue that lies in many ranges has no more runs than one that lies in few: only where it is out of order it has more.
    """
    starts = np.concatenate([[0], broken_at(columns)])
    joined = columns[:, starts]
    ends = np.append(starts[1:], columns.shape[1]) - 1
    joined[3] = columns[3, ends]
    for row in (1, *range(4, len(columns))):
        joined[row] = np.add.reduceat(columns[row], starts)
    short = joined[-1 if len(columns) > 4 else 1] < CONTINUED
    found: list[Run] = []
    for k, run in enumerate(joined.T.tolist()):
        if short[k]:
            # Damage may lie between the records of a short run, so each is looked at by itself.
            found += [Run(*one) for one in columns[:, starts[k] : ends[k] + 1].T.tolist()]
        else:
            found.append(Run(*run))
    return found
