"""Put the units of one queue in order, from its runs alone: stretches of consecutive queue offsets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

# ------------------------------------------------------------------------------------------------------------------------- runs
# Runs: stretches of consecutive queue offsets of one queue. Queue order is decided from them alone, without the records.
#
# A queue whose runs join into one is in order.

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
    """Yield runs in commitlog order, those that follow on each other together."""
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
    """Return the runs that do not follow on the one before, or where one of the two has no record.

    ``columns``: int64 (4 or 5, n), the fields of ``Run`` of one queue in commitlog order. Returns numbers of runs, ascending.
    """
    broken = columns[0, 1:] != columns[0, :-1] + columns[1, :-1]
    empty = columns[2] == columns[3]
    at: npt.NDArray[np.intp] = np.flatnonzero(broken | empty[1:] | empty[:-1]) + 1
    return at


def fewer_runs(columns: npt.NDArray[np.int64]) -> list[Run]:
    """Return runs from their columns (as for ``broken_at``); those that follow on each other are one, unless they are too
    short.

    A queue that lies in many ranges has no more runs than one that lies in few: only where it is out of order it has more.
    """
    starts = np.concatenate([[0], broken_at(columns)])
    joined = columns[:, starts]
    ends = np.append(starts[1:], columns.shape[1]) - 1
    joined[3] = columns[3, ends]
    for row in (1, *range(4, len(columns))):
        joined[row] = np.add.reduceat(columns[row], starts)
    short = joined[-1 if len(columns) > 4 else 1] < CONTINUED
    runs: list[Run] = []
    for k, run in enumerate(joined.T.tolist()):
        if short[k]:
            # Damage may lie between the records of a short run, so each is looked at by itself.
            runs += [Run(*record_run) for record_run in columns[:, starts[k] : ends[k] + 1].T.tolist()]
        else:
            runs.append(Run(*run))
    return runs


# ------------------------------------------------------------------------------------------------------------------------ order
# A queue whose runs join into one is as it should be; for any other the policy (``--queue-order``) decides.

BREAKS_MAX: Final = 250_000
"""A log with more breaks in one queue is refused: damage has fewer places."""


class RolledBack(NamedTuple):
    """A stretch [low, high) of the log with records that are older than those before it. ``whole``: all of them are."""

    low: int
    high: int
    whole: bool


class KeptUnits(NamedTuple):
    """Units that stand: those of queue offsets from ``first`` on, each at its offset + ``shift``.

    ``offsets`` is how many offsets they have, ``phy_offset`` where the first record begins and ``end`` where the last one ends.
    """

    first: int
    offsets: int
    phy_offset: int
    end: int
    shift: int

    @property
    def begin(self) -> int:
        """The position of the first unit."""
        return self.first + self.shift

    @property
    def stop(self) -> int:
        """The position behind the last unit."""
        return self.begin + self.offsets


class Fill(NamedTuple):
    """``length`` positions from ``position`` on that no record has; the unit at the position ``source`` is repeated there."""

    position: int
    length: int
    source: int


class OutOfLine(NamedTuple):
    """A record whose queue offset does not fit its queue, which is damage: absolute offset, bytes, queue offset.

    ``is_wrong``: its queue offset is sure to be wrong, since the queue goes on below it as if it had the one that is missing.
    """

    phy_offset: int
    length: int
    queue_offset: int
    is_wrong: bool = False


class OrderDecision(NamedTuple):
    """What was decided of a queue, as the manifest lists it: kind, the first queue offset, and how many units or offsets."""

    kind: str
    queue_offset: int
    total: int


@dataclass
class Placement:
    """Where the units of one queue stand. ``opened`` is the position at which a file without any unit begins, or -1."""

    kept: list[KeptUnits] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    lost: list[OutOfLine] = field(default_factory=list)
    pending: list[OutOfLine] = field(default_factory=list)
    """the queue's last records, where nothing follows that could tell whether they are in line: no damage, and no unit"""
    decisions: list[OrderDecision] = field(default_factory=list)
    between_lives: list[int] = field(default_factory=list)
    """the sources of those fills behind which the queue begins again: the missing records were of its old or its new life"""
    opened: int = -1

    @property
    def filled(self) -> int:
        """How many positions are filled."""
        return sum(fill.length for fill in self.fills)


def order_broker(runs: Sequence[Run], units_per_file: int = 0) -> Placement:
    """Return ``--queue-order broker``: exactly what ``ConsumeQueue.putMessagePositionInfo`` of 4.9 to 5.5 does.

    It never re-orders: QUEUEOFFSET 0 is appended at the queue's end unchecked, one below the end is dropped, one above it is
    appended at the end all the same. With ``units_per_file`` the placement says where a dropped record found the last file
    full: the broker had opened the next one by then, which stays empty if nothing follows.
    """
    out = Placement()
    end = -1
    expected = {after.phy_offset: run.stop for run, after in pairwise(runs) if run.is_used_up}
    for parts in join_runs([run for run in runs if not run.is_used_up]):
        first, count = parts[0].first, sum(run.offsets for run in parts)
        low, high = parts[0].phy_offset, parts[-1].end
        if end < 0 or first == end:
            out.kept.append(KeptUnits(first, count, low, high, 0))
            end = first + count
            continue
        if first == 0:
            out.kept.append(KeptUnits(0, 1, low, high, end))
            out.decisions.append(OrderDecision("restart", end, 1))
            end += 1
            first, count = 1, count - 1
        if count and first > end:
            out.kept.append(KeptUnits(first, count, low, high, end - first))
            if expected.get(low) != first:
                out.decisions.append(OrderDecision("misplaced", first, count))
            end += count
        elif count:
            dropped = min(count, end - first)
            if dropped:
                out.decisions.append(OrderDecision("dropped", first, dropped))
                if units_per_file and end % units_per_file == 0:
                    out.opened = end
            if count > dropped:
                out.kept.append(KeptUnits(first + dropped, count - dropped, low, high, 0))
                end = first + count
    if out.opened != end:
        out.opened = -1
    return out


def order_appended(runs: Sequence[Run]) -> Placement:
    """Return ``--queue-order broker`` of a batch queue: ``BatchConsumeQueue.putBatchMessagePositionInfo`` of 5.3 appends
    whatever comes.

    The placement has only decisions.
    """
    out = Placement()
    for before, after in pairwise(join_runs(runs)):
        if after[0].first != before[-1].stop:
            out.decisions.append(OrderDecision("appended", after[0].first, sum(run.offsets for run in after)))
    return out


def irregular(runs: Sequence[Run]) -> list[OrderDecision]:
    """Return what ``--queue-order fail`` refuses: repeats and gaps of queue offsets; nothing for a regular queue."""
    decisions = []
    behind = 0
    for before, after in pairwise(join_runs(runs)):
        end, first = before[-1].stop, after[0].first
        behind += sum(run.offsets for run in before if run.is_used_up)
        if behind and first == end - behind:
            behind = 0
            continue
        decisions.append(OrderDecision("repeat", first, end - first) if first < end else OrderDecision("gap", end, first - end))
    return decisions
