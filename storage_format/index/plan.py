"""Cut the items of a whole log into IndexFiles (``IndexService`` of 4.9 to 5.5), from the counts of the ranges alone."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary

WINDOWED_FILES_MAX: Final = 10_000
"""A clock that jumps must not make any number of files."""


@dataclass(frozen=True)
class BlockItems:
    """The items ``start`` to ``start + count`` of one staged block."""

    block: str
    start: int
    count: int


@dataclass(frozen=True)
class IndexFilePlan:
    """One file: its items, the item before them, and the record that makes the file.

    ``maker`` is the physical offset of that record. -1: it is to be looked up in the first stretch's block, of which
    ``maker_table`` are the items and the rows of its table of makers.
    """

    number: int
    stretches: tuple[BlockItems, ...]
    before: BlockItems | None
    maker: int
    maker_table: tuple[int, int]
    full: bool
    last: bool

    @property
    def items(self) -> int:
        """How many items the file has."""
        return sum(stretch.count for stretch in self.stretches)


@dataclass(frozen=True)
class EarlierFiles:
    """Where a plan goes on, with files that were planned when the log had more in front.

    ``skip`` items of the given ranges are in files that are gone. ``maker`` is the physical offset of the record that made the
    first file that is left, -1 if none is gone. ``window`` is the highest time window of the ranges that are no longer given.
    """

    skip: int = 0
    maker: int = -1
    window: int | None = None


_NOTHING: Final = EarlierFiles()


def _boundaries(
    ranges: Sequence[RangeSummary], starts: list[int], total: int, capacity: int, earlier: EarlierFiles
) -> list[int]:
    """Return the first item of each file, and the total.

    A file ends at its capacity, and where the highest time window so far rises.
    """
    rises: list[int] = []
    highest = earlier.window
    for start, summary in zip(starts, ranges, strict=True):
        for item, window in summary.windows:
            if highest is None or window > highest:
                highest = window
                rises.append(start + item)
    if len(rises) > WINDOWED_FILES_MAX:
        raise RefusedError(
            f"index: --index-policy would cut {len(rises)} files (at most {WINDOWED_FILES_MAX}): choose a longer window"
        )
    cuts, k = [earlier.skip], 0
    while cuts[-1] < total:
        while k < len(rises) and rises[k] <= cuts[-1]:
            k += 1
        nearest = rises[k] if k < len(rises) else total
        cuts.append(min(cuts[-1] + capacity, nearest, total))
    return cuts


def plan_index_files(ranges: Sequence[RangeSummary], index_items: int, earlier: EarlierFiles = _NOTHING) -> list[IndexFilePlan]:
    """Return the files of a log whose accepted ranges are given in order; ``index_items`` is maxIndexNum.

    Raises RefusedError where time windows would cut too many files.
    """
    capacity = index_items - 1
    starts, total = [], 0
    for summary in ranges:
        starts.append(total)
        total += summary.items
    dispatched = [s.first_dispatched for s in ranges if s.first_dispatched >= 0]
    if not dispatched:
        return []
    first_maker = earlier.maker if earlier.maker >= 0 else dispatched[0]
    cuts = _boundaries(ranges, starts, total, capacity, earlier)

    def locate(item: int) -> int:
        return bisect_right(starts, item) - 1 if item < total else len(ranges) - 1

    def stretches(low: int, high: int) -> tuple[BlockItems, ...]:
        parts, k = [], locate(low)
        while low < high:
            inside = min(high, starts[k] + ranges[k].items)
            if inside > low:
                parts.append(BlockItems(ranges[k].block, low - starts[k], inside - low))
                low = inside
            k += 1
        return tuple(parts)

    def next_dispatched(item: int) -> int:
        """Return the physical offset of the first record dispatched after that of ``item``; -1 for none.

        ``item`` is the last item of its range.
        """
        k = locate(item)
        if ranges[k].waiting >= 0:
            return ranges[k].waiting
        for summary in ranges[k + 1 :]:
            if summary.items:
                return summary.first_item_maker
            if summary.first_dispatched >= 0:
                return summary.first_dispatched
        return -1

    plans: list[IndexFilePlan] = []
    for low, high in pairwise(cuts):
        number = len(plans)
        maker, table = -1, (0, 0)
        if number == 0:
            maker = first_maker
        else:
            k = locate(low)
            if plans[-1].full and low == starts[k]:
                maker = next_dispatched(low - 1)
            elif plans[-1].full:
                table = (ranges[k].items, ranges[k].makers)
        before = stretches(low - 1, low)[0] if low else None
        full = high - low == capacity
        plans.append(IndexFilePlan(number, stretches(low, high), before, maker, table, full, high == total))
    after = next_dispatched(total - 1) if plans and plans[-1].full else -1
    if not plans or after >= 0:
        before = stretches(total - 1, total)[0] if total else None
        maker = after if plans else first_maker
        if plans:
            last = plans[-1]
            plans[-1] = IndexFilePlan(last.number, last.stretches, last.before, last.maker, last.maker_table, last.full, False)
        plans.append(IndexFilePlan(len(plans), (), before, maker, (0, 0), False, True))
    return plans
