"""Put the units of one queue in order, judged from the stretches of consecutive queue offsets alone.

A run is (first queue offset, rows, place of its first record, end of its last one), in commitlog order. A queue whose runs
join into one is as it should be; for any other the policy decides which units stand where. A run of a batch queue has its
records as a fifth number; its rows are the queue offsets that they span.

A run that ends where it begins has no record: the record before it named its light queue more than once. For each time the
broker's counter of 5.x went up (``LmqDispatch.updateLmqOffsets``), but there is one unit, and the next stands right behind it
(``ConsumeQueue.putMessagePositionInfo``). A broker that starts counts from the units again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX

Run = tuple[int, ...]
Rows = npt.NDArray[np.int64] | Sequence[Sequence[int]]

UNREADABLE_SIZE: Final = 1
CONTINUED: Final = 3
"""A record is continued when the queue's next two records follow on it: a run of three."""
BREAKS_MAX: Final = 250_000
"""More than damage can explain, of which there are fewer places, in one queue: such a log is refused."""


class RolledBack(NamedTuple):
    """A stretch [low, high) of the log with records that are older than those before it. ``whole``: all of them are."""

    low: int
    high: int
    whole: bool


@dataclass
class Placement:
    """Where the units of one queue stand.

    ``kept``: [first queue offset, rows, first place, last end, shift]: such a unit stands at its offset + shift.
    ``fills``: [first position, rows, position of the unit repeated]. ``lost``: [place, length, queue offset] of records that
    are out of line, which is damage. ``decisions``: [kind, queue offset, count]; "pending" are the last records of a queue that
    may yet come to be in line. ``opened``: the position at which a file without any unit begins, or -1.
    """

    kept: list[list[int]] = field(default_factory=list)
    fills: list[list[int]] = field(default_factory=list)
    lost: list[list[int]] = field(default_factory=list)
    decisions: list[tuple[str, int, int]] = field(default_factory=list)
    opened: int = -1

    @property
    def filled(self) -> int:
        return sum(count for _, count, _ in self.fills)


def join_runs(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs in commitlog order, those that follow on each other joined."""
    joined: list[list[Run]] = []
    following = -1
    for run in runs:
        if joined and run[0] == following:
            joined[-1].append(run)
        else:
            joined.append([run])
        following = run[0] + run[1]
    return joined


def is_used_up(run: Run) -> bool:
    """Whether a run is offsets without a record."""
    return run[2] == run[3]


def broken_at(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Where runs of one queue (columns as rows of the array, in commitlog order) do not follow on the one before, or one of
    the two has no record.
    """
    broken = columns[0, 1:] != columns[0, :-1] + columns[1, :-1]
    empty = columns[2] == columns[3]
    at: npt.NDArray[np.intp] = np.flatnonzero(broken | empty[1:] | empty[:-1]) + 1
    return at


def fewer_runs(columns: npt.NDArray[np.int64]) -> list[Run]:
    """Runs from their columns; those that follow on each other are one, but for short ones, which are judged by themselves.

    However many ranges a queue lies in, only where it is out of order makes it longer.
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
            found += [tuple(one) for one in columns[:, starts[k] : ends[k] + 1].T.tolist()]
        else:
            found.append(tuple(run))
    return found


def _keep(placement: Placement, parts: list[Run], behind: int) -> int:
    """Runs that follow on each other, ``behind`` below the offsets they name; returns how far behind the next one is."""
    open_at = -1
    for run in parts:
        if is_used_up(run):
            behind += run[1]
            open_at = -1
        elif open_at < 0:
            open_at = len(placement.kept)
            placement.kept.append([run[0], run[1], run[2], run[3], -behind])
        else:
            placement.kept[open_at][1] += run[1]
            placement.kept[open_at][3] = run[3]
    return behind


def _record_by_record(parts: list[Run]) -> list[list[Run]]:
    """Each run of a short stretch with the offsets that it used up."""
    found: list[list[Run]] = []
    for run in parts:
        if is_used_up(run):
            found[-1].append(run)
        else:
            found.append([run])
    return found


def order_logical(
    runs: Sequence[Run], holes: Sequence[int], cut: int = INT64_MAX, rolled_back: RolledBack | None = None
) -> Placement:
    """A unit stands at its QUEUEOFFSET; ``holes`` are the offsets of damage in the log, ascending.

    A record below the queue's end opens a new generation, which drops what stood at or above it, if its QUEUEOFFSET is 0 or
    it is continued; one above the end counts if it is continued or damage lies between. All others are out of line. What lies
    at or behind the offset ``cut`` of the log may continue what lies before it, and counts for nothing else. In the stretch
    ``rolled_back`` a generation begins at 0 alone, and where all of it is older none begins.

    The last records of a queue, too few yet to be continued, are pending: they get no unit before more follow. A build every
    hour must not stand still for them, and one stray record must not drop what consumers have been given.
    """
    out = Placement()
    joined, pending = join_runs(runs), list[list[int]]()
    end, last_place, behind = -1, -1, 0
    for parts in joined:
        rows = sum(run[-1] if len(run) > 4 else run[1] for run in parts if not is_used_up(run))
        # Behind the last ones nothing of the queue follows that could tell.
        refused = pending if parts is joined[-1] else out.lost
        # A short stretch is judged record by record: damage may lie between its two.
        for some in [parts] if rows >= CONTINUED else _record_by_record(parts):
            if some[0][2] >= cut:
                break
            # Behind the broker's counter as the records before it, unless it began to count anew.
            back = behind if behind and some[0][0] - behind >= end else 0
            first = some[0][0] - back
            if end >= 0 and first < end:
                older = rolled_back is not None and rolled_back.low <= some[0][2] < rolled_back.high
                begins = first == 0 and not (older and rolled_back is not None and rolled_back.whole)
                if not begins and (rows < CONTINUED or older):
                    # What contradicts an older unit never gets its place, whatever follows.
                    (out.lost if older else refused).append([some[0][2], some[0][3] - some[0][2], first])
                    continue
                out.decisions.append(("generation", first, _drop_from(out, first)))
            elif end >= 0 and first > end and rows < CONTINUED:
                nearest = bisect_right(holes, some[0][2])
                if nearest == 0 or holes[nearest - 1] < last_place:
                    refused.append([some[0][2], some[0][3] - some[0][2], first])
                    continue
            behind = _keep(out, some, back)
            end, last_place = out.kept[-1][0] + out.kept[-1][4] + out.kept[-1][1], some[-1][3]
    for before, after in pairwise(out.kept):
        low, high = before[0] + before[4] + before[1], after[0] + after[4]
        if low != high:
            out.fills.append([low, high - low, high])
            out.decisions.append(("fill", low, high - low))
    out.decisions += [("out-of-line", offset, 1) for _, _, offset in out.lost]
    if pending:
        out.decisions.append(("pending", pending[0][2], len(pending)))
    return out


def _drop_from(placement: Placement, offset: int) -> int:
    """Take back every unit at or above ``offset``; returns how many."""
    dropped = 0
    while placement.kept and placement.kept[-1][0] + placement.kept[-1][4] + placement.kept[-1][1] > offset:
        last = placement.kept[-1]
        remaining = max(0, offset - last[0] - last[4])
        dropped += last[1] - remaining
        if remaining:
            last[1] = remaining
        else:
            placement.kept.pop()
    return dropped


def order_broker(runs: Sequence[Run], units_per_file: int = 0) -> Placement:
    """Exactly what ``ConsumeQueue.putMessagePositionInfo`` does.

    It never re-orders: QUEUEOFFSET 0 is appended at the queue's end unchecked, one below the end is dropped, one above it is
    appended at the end all the same. With ``units_per_file`` it is told where a dropped record found the last file full: it had
    opened the next one by then, which stays empty if nothing follows.
    """
    out = Placement()
    end = -1
    expected = {after[2]: run[0] + run[1] for run, after in pairwise(runs) if is_used_up(run)}
    for parts in join_runs([run for run in runs if not is_used_up(run)]):
        first, rows, place, last = parts[0][0], sum(run[1] for run in parts), parts[0][2], parts[-1][3]
        if end < 0 or first == end:
            out.kept.append([first, rows, place, last, 0])
            end = first + rows
            continue
        if first == 0:
            out.kept.append([0, 1, place, last, end])
            out.decisions.append(("restart", end, 1))
            end += 1
            first, rows = 1, rows - 1
        if rows and first > end:
            out.kept.append([first, rows, place, last, end - first])
            if expected.get(place) != first:
                out.decisions.append(("misplaced", first, rows))
            end += rows
        elif rows:
            dropped = min(rows, end - first)
            if dropped:
                out.decisions.append(("dropped", first, dropped))
                if units_per_file and end % units_per_file == 0:
                    out.opened = end
            if rows > dropped:
                out.kept.append([first + dropped, rows - dropped, place, last, 0])
                end = first + rows
    if out.opened != end:
        out.opened = -1
    return out


def order_appended(runs: Sequence[Run]) -> Placement:
    """Exactly what ``BatchConsumeQueue.putBatchMessagePositionInfo`` does: whatever comes is appended. Only decisions."""
    out = Placement()
    for before, after in pairwise(join_runs(runs)):
        end = before[-1][0] + before[-1][1]
        if after[0][0] != end:
            out.decisions.append(("appended", after[0][0], sum(run[1] for run in after)))
    return out


def irregular(runs: Sequence[Run]) -> list[tuple[str, int, int]]:
    """What ``--queue-order fail`` objects to: [(repeat or gap, queue offset, rows)]; nothing for a regular queue."""
    joined = join_runs(runs)
    found = []
    behind = 0
    for before, after in pairwise(joined):
        end = before[-1][0] + before[-1][1]
        first = after[0][0]
        behind += sum(run[1] for run in before if is_used_up(run))
        if behind and first == end - behind:
            behind = 0
            continue
        found.append(("repeat", first, end - first) if first < end else ("gap", end, first - end))
    return found


def kept_at(kept: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> list[list[int]]:
    """The rows of ``Placement.kept`` that units at ``places``, which ascend, can belong to."""
    if not len(places):
        return []
    low = int(np.searchsorted(kept[:, 3], places[0], side="right"))
    high = int(np.searchsorted(kept[:, 2], places[-1], side="right"))
    rows: list[list[int]] = kept[low:high].tolist()
    return rows


class PlacementTable:
    """A placement as it is applied to units, block by block.

    ``delayed``: of the schedule topic. What its units point to is delivered as a new message, once for each unit, so a fill
    has a size at which no message can be read: ``ScheduleMessageService`` passes over it. For any other topic it would lose
    messages, as a client drops what follows in the batch.
    """

    def __init__(self, kept: Rows, fills: Rows, delayed: bool = False) -> None:
        self._delayed = delayed
        self._kept = np.array(kept, dtype=np.int64).reshape(-1, 5)
        self._fills = np.array(fills, dtype=np.int64).reshape(-1, 3)
        self._fills = self._fills[np.argsort(self._fills[:, 2], kind="stable")]

    def place(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Units of the queue (rows offset, place, size, tagsCode; ascending by place) with positions for offsets.

        Units that stand nowhere are gone; a unit that fills a gap before it stands there as well.
        """
        place = units[1]
        found = [units[:, :0]]
        for first, rows, low_place, end_place, shift in kept_at(self._kept, place):
            start, stop = np.searchsorted(place, [low_place, end_place])
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
                if self._delayed:
                    filling[2] = UNREADABLE_SIZE
                found.append(filling)
        return np.concatenate(found, axis=1)
