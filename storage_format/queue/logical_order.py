"""Put the units of one queue where their queue offsets say: ``--queue-order logical``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.order import Decision, Fill, Kept, OutOfLine, Placement, RolledBack
from rocketmq_reindex.storage_format.queue.runs import CONTINUED, Run, join_runs


def order_logical(
    runs: Sequence[Run], holes: Sequence[int], cut: int = INT64_MAX, rolled_back: RolledBack | None = None
) -> Placement:
    """``--queue-order logical``: a unit stands at its QUEUEOFFSET.

    ``runs`` in commitlog order; ``holes`` are the absolute offsets of damage in the log, ascending. What lies at or behind the
    offset ``cut`` of the log may continue what lies before it, and counts for nothing else.

    A record below the queue's end opens a new generation, which drops what stood at or above it, if it is continued, or if its
    QUEUEOFFSET is 0, unless it stands alone where the queue goes on behind it. A record above the end counts if it is
    continued, if damage lies between, if as many records out of line lie between as offsets are missing, if nothing follows and
    one offset is missing, or if what follows in the queue lies above it and counts by itself: then a record is lost where
    nothing shows it. All others are out of line. In the stretch ``rolled_back`` a generation begins at 0 alone, and where all
    of it is older none begins.

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
        self._is_alone = False
        """whether nothing follows on the record that is looked at"""
        self._rises = False
        """whether the queue goes on above the records that are looked at, and that counts by itself"""
        self._next = -1
        """the queue offset of the first record behind those that are looked at and follow on each other; -1 for none"""
        self._last_runs = list[Run]()
        """the last of those that follow on each other"""
        self._last = -1
        """the absolute offset behind the last record that counted"""
        self._strays = 0
        """how many offsets the records out of line behind the last unit used up"""
        self._behind = 0
        """how far the units stand behind the offsets that they name, since some offsets have no record"""

    def order(self, runs: Sequence[Run]) -> Placement:
        out = self._out
        joined = list(join_runs(runs))
        self._last_runs = joined[-1] if joined else []
        for runs_joined, following in zip_longest(joined, joined[1:]):
            continued = _is_continued(runs_joined)
            self._next = following[0].first if following is not None else -1
            self._rises = following is not None and self._goes_on(runs_joined[-1], following)
            self._is_alone = sum(run.offsets for run in runs_joined) == 1
            # Behind the queue's last records nothing follows that could tell whether they are in line.
            refused = self._pending if runs_joined[-1] is runs[-1] else out.lost
            for some in [runs_joined] if continued or len(runs_joined) == 1 else _record_by_record(runs_joined):
                if some[0].phy_offset >= self._cut:
                    break
                self._take(some, continued, refused)
        for before, after in pairwise(out.kept):
            stop, begin = before.stop, after.begin
            if stop != begin:
                out.fills.append(Fill(stop, begin - stop, begin))
                out.decisions.append(Decision("fill", stop, begin - stop))
        out.decisions += [Decision("out-of-line", record.queue_offset, 1) for record in out.lost]
        out.ahead += [record for record in self._pending if record.queue_offset > self._end]
        if self._pending:
            out.decisions.append(Decision("pending", self._pending[0].queue_offset, len(self._pending)))
        return out

    def _take(self, runs: list[Run], continued: bool, refused: list[OutOfLine]) -> None:
        """Runs that follow on each other: where they stand, or that they are out of line."""
        out, run, end = self._out, runs[0], self._end
        # As far behind the broker's counter as the records before it, unless the broker began to count anew.
        behind = self._behind if self._behind and run.first - self._behind >= end else 0
        first = run.first - behind
        if end >= 0 and first < end:
            rolled = self._rolled_back
            older = rolled is not None and rolled.low <= run.phy_offset < rolled.high
            # One record, behind which the queue goes on as if it were the next one, has a wrong offset: it begins nothing.
            is_wrong = self._is_alone and self._next == end + 1
            begins = first == 0 and not is_wrong and not (older and rolled is not None and rolled.whole)
            if not begins and (older or not continued):
                # What contradicts an older unit never gets its position, whatever follows.
                (out.lost if older else refused).append(_out_of_line(run, first))
                self._strays += 0 if older else sum(run.offsets for run in runs)
                return
            out.decisions.append(Decision("generation", first, _drop_from(out.kept, first)))
        elif end >= 0 and first > end and not (continued or self._rises or self._is_explained(run, first)):
            refused.append(_out_of_line(run, first))
            self._strays += sum(run.offsets for run in runs)
            return
        self._behind = _keep(out.kept, runs, behind)
        self._end, self._last, self._strays = out.kept[-1].stop, runs[-1].end, 0

    def _is_explained(self, run: Run, first: int) -> bool:
        """Whether damage, or records out of line, are what is missing before a record above the queue's end.

        Of the queue's last records, one above its end, it was one other record that a broker wrote otherwise.
        """
        missing = first - self._end
        return missing == self._strays or (missing == 1 and self._next < 0) or self._is_damaged(self._last, run)

    def _is_damaged(self, last: int, run: Run) -> bool:
        """Whether damage lies between the absolute offset ``last``, behind a record, and this run."""
        nearest = bisect_right(self._holes, run.phy_offset)
        return nearest > 0 and self._holes[nearest - 1] >= last

    def _goes_on(self, run: Run, following: list[Run]) -> bool:
        """Whether what follows on ``run`` in the queue lies above it, and is continued, comes behind damage or is its end."""
        if following[0].first <= run.stop:
            return False
        ends = following[0].first == run.stop + 1 and following is self._last_runs
        return ends or _is_continued(following) or self._is_damaged(run.end, following[0])


def _out_of_line(run: Run, queue_offset: int) -> OutOfLine:
    return OutOfLine(run.phy_offset, run.end - run.phy_offset, queue_offset)


def _is_continued(runs: list[Run]) -> bool:
    # The loops here take runs apart: their properties would take half of the time.
    records = 0
    for _, offsets, phy_offset, end, batch_records in runs:
        if phy_offset != end:
            records += batch_records or offsets
    return records >= CONTINUED


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
    for first, offsets, phy_offset, run_end, _ in runs:
        if phy_offset == run_end:
            behind += offsets
            goes_on = False
            continue
        if goes_on:
            before = kept.pop()
            first, offsets, phy_offset = before.first, before.offsets + offsets, before.phy_offset
        kept.append(Kept(first, offsets, phy_offset, run_end, -behind))
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
