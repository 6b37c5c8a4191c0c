"""Put the units of one queue in order, from its runs alone: which units stand, and where.

A queue whose runs join into one is as it should be; for any other the policy (``--queue-order``) decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.placement import PlacementTable as PlacementTable
from rocketmq_reindex.storage_format.queue.placement import Rows as Rows
from rocketmq_reindex.storage_format.queue.runs import CONTINUED
from rocketmq_reindex.storage_format.queue.runs import Run as Run
from rocketmq_reindex.storage_format.queue.runs import broken_at as broken_at
from rocketmq_reindex.storage_format.queue.runs import fewer_runs as fewer_runs
from rocketmq_reindex.storage_format.queue.runs import join_runs as join_runs

BREAKS_MAX: Final = 250_000
"""A log with more breaks in one queue is refused: damage has fewer places."""


class RolledBack(NamedTuple):
    """A stretch [low, high) of the log with records that are older than those before it. ``whole``: all of them are."""

    low: int
    high: int
    whole: bool


class Kept(NamedTuple):
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
    """A record whose queue offset does not fit its queue, which is damage: absolute offset, bytes, queue offset."""

    phy_offset: int
    length: int
    queue_offset: int


class Decision(NamedTuple):
    """What was decided of a queue, as the manifest lists it: kind, the first queue offset, and how many units or offsets."""

    kind: str
    queue_offset: int
    total: int


@dataclass
class Placement:
    """Where the units of one queue stand.

    A decision "pending" is of the last records of a queue, which may yet come to be in line. ``opened`` is the position at
    which a file without any unit begins, or -1.
    """

    kept: list[Kept] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    lost: list[OutOfLine] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    opened: int = -1

    @property
    def filled(self) -> int:
        """How many positions are filled."""
        return sum(fill.length for fill in self.fills)


def order_logical(
    runs: Sequence[Run], holes: Sequence[int], cut: int = INT64_MAX, rolled_back: RolledBack | None = None
) -> Placement:
    """``--queue-order logical``: a unit stands at its QUEUEOFFSET.

    ``runs`` in commitlog order; ``holes`` are the absolute offsets of damage in the log, ascending. What lies at or behind the
    offset ``cut`` of the log may continue what lies before it, and counts for nothing else.

    A record below the queue's end opens a new generation, which drops what stood at or above it, if its QUEUEOFFSET is 0 or it
    is continued. A record above the end counts if it is continued or damage lies between. All others are out of line. In the
    stretch ``rolled_back`` a generation begins at 0 alone, and where all of it is older none begins.

    The last records of a queue, too few yet to be continued, are pending: they get no unit before more follow. A build every
    hour must not stand still for them, and one stray record must not drop what consumers have been given.
    """
    return _Logical(holes, cut, rolled_back).order(runs)


class _Logical:
    """One ``order_logical``: what stands so far."""

    def __init__(self, holes: Sequence[int], cut: int, rolled_back: RolledBack | None) -> None:
        self._holes, self._cut, self._rolled_back = holes, cut, rolled_back
        self._out, self._pending = Placement(), list[OutOfLine]()
        self._end = -1
        """the position behind the last unit"""
        self._last = -1
        """the absolute offset behind the last record that counted"""
        self._behind = 0
        """how far the units stand behind the offsets that they name, since some offsets have no record"""

    def order(self, runs: Sequence[Run]) -> Placement:
        out, joined = self._out, join_runs(runs)
        for runs_joined in joined:
            records = sum(run.records for run in runs_joined)
            # Behind the queue's last records nothing follows that could tell whether they are in line.
            refused = self._pending if runs_joined is joined[-1] else out.lost
            for some in [runs_joined] if records >= CONTINUED else _record_by_record(runs_joined):
                if some[0].phy_offset >= self._cut:
                    break
                self._take(some, records >= CONTINUED, refused)
        for before, after in pairwise(out.kept):
            if before.stop != after.begin:
                gap = after.begin - before.stop
                out.fills.append(Fill(before.stop, gap, after.begin))
                out.decisions.append(Decision("fill", before.stop, gap))
        out.decisions += [Decision("out-of-line", record.queue_offset, 1) for record in out.lost]
        if self._pending:
            out.decisions.append(Decision("pending", self._pending[0].queue_offset, len(self._pending)))
        return out

    def _take(self, runs: list[Run], continued: bool, refused: list[OutOfLine]) -> None:
        """Runs that follow on each other: where they stand, or that they are out of line."""
        out, run, end = self._out, runs[0], self._end
        # As far behind the broker's counter as the records before it, unless the broker began to count anew.
        behind = self._behind if self._behind and run.first - self._behind >= end else 0
        first = run.first - behind
        record = OutOfLine(run.phy_offset, run.end - run.phy_offset, first)
        if end >= 0 and first < end:
            rolled = self._rolled_back
            older = rolled is not None and rolled.low <= run.phy_offset < rolled.high
            begins = first == 0 and not (older and rolled is not None and rolled.whole)
            if not begins and (older or not continued):
                # What contradicts an older unit never gets its position, whatever follows.
                (out.lost if older else refused).append(record)
                return
            out.decisions.append(Decision("generation", first, _drop_from(out.kept, first)))
        elif end >= 0 and first > end and not continued and not self._is_damaged_before(run):
            refused.append(record)
            return
        self._behind = _keep(out.kept, runs, behind)
        self._end, self._last = out.kept[-1].stop, runs[-1].end

    def _is_damaged_before(self, run: Run) -> bool:
        """Whether damage lies between the last record that counted and this run."""
        nearest = bisect_right(self._holes, run.phy_offset)
        return nearest > 0 and self._holes[nearest - 1] >= self._last


def _record_by_record(runs: list[Run]) -> list[list[Run]]:
    """Each run of a short stretch with the offsets that it used up: damage may lie between its two."""
    found: list[list[Run]] = []
    for run in runs:
        if run.is_used_up:
            found[-1].append(run)
        else:
            found.append([run])
    return found


def _keep(kept: list[Kept], runs: list[Run], behind: int) -> int:
    """Runs that follow on each other, ``behind`` below the offsets they name; returns how far behind the next one is."""
    goes_on = False
    for run in runs:
        if run.is_used_up:
            behind += run.offsets
            goes_on = False
        elif goes_on:
            kept[-1] = kept[-1]._replace(offsets=kept[-1].offsets + run.offsets, end=run.end)
        else:
            kept.append(Kept(run.first, run.offsets, run.phy_offset, run.end, -behind))
            goes_on = True
    return behind


def _drop_from(kept: list[Kept], position: int) -> int:
    """Take back every unit at or above ``position``; returns how many."""
    dropped = 0
    while kept and kept[-1].stop > position:
        last = kept.pop()
        remaining = max(0, position - last.begin)
        dropped += last.offsets - remaining
        if remaining:
            kept.append(last._replace(offsets=remaining))
    return dropped


def order_broker(runs: Sequence[Run], units_per_file: int = 0) -> Placement:
    """``--queue-order broker``: exactly what ``ConsumeQueue.putMessagePositionInfo`` of 4.9 and 5.3 does.

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
            out.kept.append(Kept(first, count, low, high, 0))
            end = first + count
            continue
        if first == 0:
            out.kept.append(Kept(0, 1, low, high, end))
            out.decisions.append(Decision("restart", end, 1))
            end += 1
            first, count = 1, count - 1
        if count and first > end:
            out.kept.append(Kept(first, count, low, high, end - first))
            if expected.get(low) != first:
                out.decisions.append(Decision("misplaced", first, count))
            end += count
        elif count:
            dropped = min(count, end - first)
            if dropped:
                out.decisions.append(Decision("dropped", first, dropped))
                if units_per_file and end % units_per_file == 0:
                    out.opened = end
            if count > dropped:
                out.kept.append(Kept(first + dropped, count - dropped, low, high, 0))
                end = first + count
    if out.opened != end:
        out.opened = -1
    return out


def order_appended(runs: Sequence[Run]) -> Placement:
    """``--queue-order broker`` of a batch queue: ``BatchConsumeQueue.putBatchMessagePositionInfo`` of 5.3 appends whatever
    comes.

    The placement has only decisions.
    """
    out = Placement()
    for before, after in pairwise(join_runs(runs)):
        if after[0].first != before[-1].stop:
            out.decisions.append(Decision("appended", after[0].first, sum(run.offsets for run in after)))
    return out


def irregular(runs: Sequence[Run]) -> list[Decision]:
    """What ``--queue-order fail`` refuses: repeats and gaps of queue offsets; nothing for a regular queue."""
    found = []
    behind = 0
    for before, after in pairwise(join_runs(runs)):
        end, first = before[-1].stop, after[0].first
        behind += sum(run.offsets for run in before if run.is_used_up)
        if behind and first == end - behind:
            behind = 0
            continue
        found.append(Decision("repeat", first, end - first) if first < end else Decision("gap", end, first - end))
    return found
