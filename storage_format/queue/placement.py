"""Where the units of a queue go: the logical order, and how a placement is applied block by block."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import order as queue_order
from rocketmq_reindex.storage_format.queue.units import BATCH_COUNT_MAX, FILL_MAX
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN

# ---------------------------------------------------------------------------------------------------------------- logical order
# Put the units of one queue where their queue offsets say: ``--queue-order logical``.

AHEAD: Final = 32
"""Stretches of the queue behind a jump that may speak for it or against it: those right behind it tell."""


@dataclass(frozen=True)
class LogEvidence:
    """What the order of each queue of one log depends on besides its own records."""

    lost: tuple[int, ...] = ()
    """absolute offsets at which lost stretches of the log end, ascending (``Chain.gaps``)"""
    rolled_back: queue_order.RolledBack | None = None
    """where records are older than those before them"""
    fill_max: int = FILL_MAX
    """missing offsets that a jump may have which nothing explains (``--max-fill``)"""
    from_zero: bool = False
    """whether the log begins at offset 0"""

    def place(self, runs: Sequence[queue_order.Run], units_per_file: int, cut: int = INT64_MAX) -> queue_order.Placement:
        """Return ``order_logical`` of a queue with ``units_per_file`` units in a file; 1 for a batch queue, which has no
        pre-blank."""
        file_units = units_per_file if self.from_zero else 0
        return order_logical(runs, self.lost, cut, self.rolled_back, fill_max=self.fill_max, file_units=file_units)

    def fills_head(self, first: int, phy_offset: int, units_per_file: int) -> bool:
        """Return whether something stands before a queue's first record, at this queue offset and absolute offset."""
        missing = first % units_per_file
        return self.from_zero and 0 < missing <= self.fill_max and bool(self.lost) and self.lost[0] <= phy_offset


def order_logical(
    runs: Sequence[queue_order.Run],
    lost: Sequence[int],
    cut: int = INT64_MAX,
    rolled_back: queue_order.RolledBack | None = None,
    *,
    fill_max: int = FILL_MAX,
    file_units: int = 0,
) -> queue_order.Placement:
    """Return ``--queue-order logical``: a unit stands at its QUEUEOFFSET.

    ``runs`` in commitlog order; ``lost`` are the absolute offsets at which lost stretches of the log end, ascending. What lies
    at or behind the offset ``cut`` of the log may continue what lies before it, and counts for nothing else. ``fill_max`` as in
    ``_counts``, ``file_units`` as in ``_fill_head``.

    A record below the queue's end opens a new generation, which drops what stood at or above it, if it is continued, or if its
    QUEUEOFFSET is 0, unless it stands alone where the queue goes on behind it. In the stretch ``rolled_back`` a generation
    begins at 0 alone, and where all of it is older none begins. A record above the end counts unless the queue goes on behind
    it as if it were not there, or had another offset (``_is_contradicted``). A missing offset repeats the next record's unit.

    All other records are out of line. At the queue's end they are pending: more that follow on them may yet make a generation.
    """
    return _Logical(lost, cut, rolled_back, fill_max).order(runs, file_units)


class _Logical:
    """One ``order_logical``: what stands so far."""

    def __init__(self, lost: Sequence[int], cut: int, rolled_back: queue_order.RolledBack | None, fill_max: int) -> None:
        self._lost, self._cut, self._rolled_back, self._fill_max = lost, cut, rolled_back, fill_max
        self._out = queue_order.Placement()
        self._joined = list[list[queue_order.Run]]()
        self._end = -1
        """the position behind the last unit"""
        self._last = -1
        """the absolute offset behind the last record that counted"""
        self._strays = 0
        """how many offsets the records out of line behind the last unit used up"""
        self._first_stray = 0
        """the first of them in ``Placement.lost``"""
        self._begun = list[int]()
        """where the generations begin that stand"""
        self._behind = 0
        """how far the units stand behind the offsets that they name, since some offsets have no record"""

    def order(self, runs: Sequence[queue_order.Run], file_units: int) -> queue_order.Placement:
        out = self._out
        self._joined = list(queue_order.join_runs(runs))
        for number, joined in enumerate(self._joined):
            if joined[0].phy_offset >= self._cut:
                break
            self._take(number, joined)
        self._fill_head(file_units)
        for before, after in pairwise(out.kept):
            if before.stop != after.begin:
                self._fill(before.stop, after.begin)
        out.decisions += [queue_order.OrderDecision("out-of-line", record.queue_offset, 1) for record in out.lost]
        if out.pending:
            out.decisions.append(queue_order.OrderDecision("pending", out.pending[0].queue_offset, len(out.pending)))
        return out

    def _fill(self, position: int, source: int) -> None:
        self._out.fills.append(queue_order.Fill(position, source - position, source))
        self._out.decisions.append(queue_order.OrderDecision("fill", position, source - position))
        at = bisect_left(self._begun, source)
        if at < len(self._begun) and self._begun[at] == source:
            self._out.between_lives.append(source)

    def _fill_head(self, file_units: int) -> None:
        """The offsets before the queue's first record, in a file of ``file_units`` units, where lost bytes lie before it.

        ``file_units`` is 0 in a log that does not begin at 0. A broker takes pre-blank (``ConsumeQueue.fillPreBlank``) there
        for units of expired records, else for messages (``correctMinOffset``), which it cannot read.
        """
        if not file_units or not self._out.kept:
            return
        first = self._out.kept[0]
        missing = first.begin % file_units
        if 0 < missing <= self._fill_max and self._is_lost_between(0, first.phy_offset):
            self._fill(first.begin - missing, first.begin)

    def _take(self, number: int, joined: list[queue_order.Run]) -> None:
        """Runs that follow on each other: where they stand, or that they are out of line."""
        out, run, end = self._out, joined[0], self._end
        # As far behind the broker's counter as the records before it, unless the broker began to count anew.
        behind = self._behind if self._behind and run.first - self._behind >= end else 0
        first = run.first - behind
        if end >= 0 and first < end:
            if not self._begins(number, joined, first):
                self._refuse(number, joined, behind)
                return
            out.decisions.append(queue_order.OrderDecision("generation", first, _drop_from(out.kept, first)))
            while self._begun and self._begun[-1] >= first:
                self._begun.pop()
            self._begun.append(first)
        elif end >= 0 and first > end:
            if not self._counts(number, joined, first):
                self._refuse(number, joined, behind)
                return
            if first - end == self._strays:
                self._note_wrong(first, run)
        self._behind = _keep(out.kept, joined, behind)
        self._end, self._last = out.kept[-1].stop, joined[-1].end
        self._strays, self._first_stray = 0, len(out.lost)

    def _begins(self, number: int, joined: list[queue_order.Run], first: int) -> bool:
        """Return whether records below the queue's end open a new generation."""
        rolled = self._rolled_back
        older = rolled is not None and rolled.low <= joined[0].phy_offset < rolled.high
        if first != 0:
            # What contradicts an older unit never gets its position, whatever follows.
            return _is_continued(joined) and not older
        following = self._joined[number + 1] if number + 1 < len(self._joined) else None
        # One record, behind which the queue goes on as if it were the next one, has a wrong offset: it begins nothing.
        is_wrong = _offsets(joined) == 1 and following is not None and following[0].first == self._end + 1
        return not is_wrong and not (older and rolled is not None and rolled.whole)

    def _refuse(self, number: int, joined: list[queue_order.Run], behind: int) -> None:
        """The records are out of line; behind the queue's last ones nothing follows that could tell.

        Of a few only the first one is: those behind it may be in line.
        """
        out, rolled = self._out, self._rolled_back
        stop = len(joined) if _is_continued(joined) else 1
        while stop < len(joined) and joined[stop].is_used_up:
            stop += 1
        records = (run for run in joined[:stop] if not run.is_used_up)
        refused = [queue_order.OutOfLine(run.phy_offset, run.end - run.phy_offset, run.first - behind) for run in records]
        older = rolled is not None and rolled.low <= joined[0].phy_offset < rolled.high
        if number + 1 == len(self._joined) and not older:
            out.pending += refused
        else:
            out.lost += refused
        self._strays += 0 if older else _offsets(joined[:stop])
        if stop < len(joined) and joined[stop].phy_offset < self._cut:
            self._take(number, joined[stop:])

    def _note_wrong(self, first: int, run: queue_order.Run) -> None:
        """The records out of line before the one at ``first`` are what is missing there: those above it have wrong offsets,
        unless lost bytes before ``run`` explain these.

        A broker counts up. One below may be of a queue that was cut back.
        """
        lost = self._out.lost
        for k in range(self._first_stray, len(lost)):
            at = lost[k].queue_offset
            lost[k] = lost[k]._replace(is_wrong=at > first and not self._is_explained(run, at - self._end))

    def _counts(self, number: int, joined: list[queue_order.Run], first: int) -> bool:
        """Return whether records above the queue's end are where they say.

        They are if lost bytes before them explain it, if three follow on each other, or if as many records out of line lie
        before them as offsets are missing: those then have wrong offsets. Otherwise, unless what follows contradicts it, and at
        most ``fill_max`` offsets are missing: beyond that a wrong offset is more likely than so many lost records.
        """
        missing = first - self._end
        if missing == self._strays or _is_continued(joined) or self._is_explained(joined[0], missing):
            return True
        return missing <= self._fill_max and not self._is_contradicted(number, joined, joined[0].first - first)

    def _is_contradicted(self, number: int, joined: list[queue_order.Run], behind: int) -> bool:
        """Return whether the queue goes on behind these records as if they were not there, or had other offsets.

        It goes on at its end, or as far above as these records have offsets; where bytes are lost, also farther above by as
        many offsets as these explain. Where three records follow on each other, also anywhere below these. Such three, or a
        queue that begins again at 0, end the search: what lies behind says no more.
        """
        stop, offsets, goes_on = joined[-1].stop, self._strays + _offsets(joined), False
        for later in self._joined[number + 1 : number + 1 + AHEAD]:
            first, continued = later[0].first, _is_continued(later)
            above = first - behind - self._end
            if (
                above >= 0
                and first < stop
                and (continued or above in (0, offsets) or self._is_explained(later[0], above - offsets))
            ):
                goes_on = True
            if continued or first == 0:
                return goes_on and first != stop
            offsets += _offsets(later)
        return goes_on

    def _is_explained(self, run: queue_order.Run, missing: int) -> bool:
        """Return whether bytes are lost before ``run``, and the log has room there for as many records as offsets are missing.

        Of a batch queue nobody knows how many messages a lost record had.
        """
        room = INT64_MAX if run.batch_records else (run.phy_offset - self._last) // RECORD_MIN
        return missing <= room and self._is_lost_between(self._last, run.phy_offset)

    def _is_lost_between(self, last: int, phy_offset: int) -> bool:
        """Return whether bytes of the log are lost between ``last``, behind a record, and the record at ``phy_offset``."""
        nearest = bisect_right(self._lost, phy_offset)
        return nearest > 0 and self._lost[nearest - 1] >= last


def _offsets(joined: Sequence[queue_order.Run]) -> int:
    return sum(run.offsets for run in joined)


def _is_continued(joined: list[queue_order.Run]) -> bool:
    # The loops here take runs apart: their properties would take half of the time.
    records = 0
    for _, offsets, phy_offset, end, batch_records in joined:
        if phy_offset != end:
            records += batch_records or offsets
    return records >= queue_order.CONTINUED


def _keep(kept: list[queue_order.KeptUnits], runs: list[queue_order.Run], behind: int) -> int:
    """Return runs that follow on each other, ``behind`` below the offsets they name, and how far behind the next one is."""
    goes_on = False
    for first, offsets, phy_offset, run_end, _ in runs:
        if phy_offset == run_end:
            behind += offsets
            goes_on = False
            continue
        if goes_on:
            before = kept.pop()
            first, offsets, phy_offset = before.first, before.offsets + offsets, before.phy_offset
        kept.append(queue_order.KeptUnits(first, offsets, phy_offset, run_end, -behind))
        goes_on = True
    return behind


def _drop_from(kept: list[queue_order.KeptUnits], position: int) -> int:
    """Take back every unit at or above ``position``. Return how many."""
    dropped = 0
    while kept and kept[-1].stop > position:
        last = kept.pop()
        remaining = max(0, position - last.begin)
        dropped += last.offsets - remaining
        if remaining:
            kept.append(last._replace(offsets=remaining))
    return dropped


# -------------------------------------------------------------------------------------------------------------------- placement
# Apply a placement (``queue.order.Placement``) to the units of a queue, block by block.

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64] | Sequence[Sequence[int]]
"""``Placement.kept`` or ``Placement.fills``, or all their numbers in one row"""

UNREADABLE_SIZE: Final = 1


def kept_at(kept: Int64s, phy_offsets: Int64s) -> list[list[int]]:
    """Return the rows of ``kept`` that units at these physical offsets, which ascend, can belong to. ``kept``: int64 (n, 5)."""
    if not len(phy_offsets):
        return []
    low = int(np.searchsorted(kept[:, 3], phy_offsets[0], side="right"))
    high = int(np.searchsorted(kept[:, 2], phy_offsets[-1], side="right"))
    rows: list[list[int]] = kept[low:high].tolist()
    return rows


class PlacementTable:
    """The placement of a plain queue, applied to its units block by block.

    ``waiting``: the queue is of a topic from which the broker itself delivers (``topics.WAITING_TOPICS``): a new message for
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
        """Return the units that stand, with their positions in place of queue offsets, and those that fill gaps.

        ``units``: int64 (UNIT_COLUMNS, n), ascending by physical offset.
        """
        parts = [units[:, :0]]
        for first, rows, low, end, shift in kept_at(self._kept, units[1]):
            start, stop = np.searchsorted(units[1], [low, end])
            part = units[:, start:stop]
            part = part[:, (part[0] >= first) & (part[0] < first + rows)].copy()
            part[0] += shift
            parts.append(part)
        placed = np.concatenate(parts, axis=1)
        sources = self._fills[:, 2]
        if len(sources):
            at = np.minimum(np.searchsorted(sources, placed[0]), len(sources) - 1)
            for k in np.flatnonzero(sources[at] == placed[0]).tolist():
                first, rows, _ = self._fills[at[k]].tolist()
                filling = np.repeat(placed[:, k : k + 1], rows, axis=1)
                filling[0] = np.arange(first, first + rows)
                if self._waiting:
                    filling[2] = UNREADABLE_SIZE
                parts.append(filling)
        return np.concatenate(parts, axis=1)


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
        """Return the units that stand, each behind those that fill the gap before it.

        ``units``: int64 (BATCH_COLUMNS, n), ascending by physical offset.
        """
        parts = [units[:, :0]]
        for first, span, low, end, _ in kept_at(self._kept, units[1]):
            start, stop = np.searchsorted(units[1], [low, end])
            part = units[:, start:stop]
            part = part[:, part[0] < first + span].copy()
            # A later life of the topic may begin inside a batch: what comes before that is still served.
            part[5] = np.minimum(part[5], first + span - part[0])
            parts.append(part)
        placed = np.concatenate(parts, axis=1)
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
