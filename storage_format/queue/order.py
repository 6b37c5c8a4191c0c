"""Put the units of one queue in order, from its runs alone: which units stand, and where.

A queue whose runs join into one is as it should be; for any other the policy (``--queue-order``) decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.queue.runs import Run, join_runs

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
    """A record whose queue offset does not fit its queue, which is damage: absolute offset, bytes, queue offset.

    ``is_wrong``: its queue offset is sure to be wrong, since the queue goes on below it as if it had the one that is missing.
    """

    phy_offset: int
    length: int
    queue_offset: int
    is_wrong: bool = False


class Decision(NamedTuple):
    """What was decided of a queue, as the manifest lists it: kind, the first queue offset, and how many units or offsets."""

    kind: str
    queue_offset: int
    total: int


@dataclass
class Placement:
    """Where the units of one queue stand. ``opened`` is the position at which a file without any unit begins, or -1."""

    kept: list[Kept] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    lost: list[OutOfLine] = field(default_factory=list)
    pending: list[OutOfLine] = field(default_factory=list)
    """the queue's last records, where nothing follows that could tell whether they are in line: no damage, and no unit"""
    decisions: list[Decision] = field(default_factory=list)
    between_lives: list[int] = field(default_factory=list)
    """the sources of those fills behind which the queue begins again: the missing records were of its old or its new life"""
    opened: int = -1

    @property
    def filled(self) -> int:
        """How many positions are filled."""
        return sum(fill.length for fill in self.fills)


def order_broker(runs: Sequence[Run], units_per_file: int = 0) -> Placement:
    """``--queue-order broker``: exactly what ``ConsumeQueue.putMessagePositionInfo`` of 4.9 to 5.5 does.

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
