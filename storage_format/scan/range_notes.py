"""What a scan notes in the summary of a range: damage, the last byte that is not zero, and what its blocks hold."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.window import Window

WINDOWS_MAX: Final = 10_001
HOLES_MAX: Final = 100_000
"""A log with more damaged places than that is refused, so a range lists no more of them. No disk makes as many."""
_COUNTED: Final = {
    "last_good": w.LAST_GOOD,
    "records": w.RECORDS,
    "unit_records": w.UNIT_RECORDS,
    "excluded": w.EXCLUDED,
    "first_dispatched": w.FIRST_DISPATCHED,
    "last_dispatched": w.LAST_DISPATCHED,
    "last_time": w.LAST_TIME,
    "last_unit": w.LAST_UNIT,
    "last_unit_time": w.LAST_UNIT_TIME,
    "time_min": w.TIME_MIN,
    "time_max": w.TIME_MAX,
    "tag_items": w.TAG_ITEMS,
    "waiting": w.WAITING,
    "inner_batches": w.INNER_BATCHES,
    "batches_refused": w.BATCHES_REFUSED,
    "batches_empty": w.BATCHES_EMPTY,
    "lmq_slash": w.LMQ_SLASH,
    "lmq_no_file": w.LMQ_NO_FILE,
    "lmq_malformed": w.LMQ_BAD,
}
"""Fields of a summary, and the numbers of the loop that they are."""


class RangeNotes:
    """Notes what is met in ``summary``; indexes are those of ``window.data``."""

    def __init__(self, summary: RangeSummary, window: Window) -> None:
        self._summary, self._window = summary, window
        self._highest: int | None = None
        """the highest time window so far"""

    def hole(self, offset: int, length: int, code: int) -> None:
        """Bytes that are no good record; ``code`` says why, as in ``record.layout``."""
        if len(self._summary.holes) <= HOLES_MAX:
            self._summary.holes.append([offset, length, code])

    def lost(self, start: int, end: int) -> None:
        """A stretch [start, end) that stands for lost bytes, at or behind all of those before it."""
        stretches = self._summary.lost
        if stretches and sum(stretches[-1]) == start:
            stretches[-1][1] += end - start
        elif start < end and len(stretches) <= HOLES_MAX:
            stretches.append([start, end - start])

    def fillers(self, state: w.State) -> None:
        """Take over the stretch of fillers that ``state`` has, which then has none."""
        if state[w.LOST_START] >= 0:
            self.lost(int(state[w.LOST_START]), int(state[w.LOST_END]))
        state[w.LOST_START] = state[w.LOST_END] = -1

    def nonzero(self, low: int, high: int) -> None:
        """Remember the last byte that is not zero in ``data[low:high]``, of those that are in memory."""
        window = self._window
        view = window.data[low : min(high, window.filled)]
        if len(view) and view.any():
            self._summary.last_nonzero = window.base + high - 1 - int(np.argmax(view[::-1] != 0))

    def rest(self, high: int) -> None:
        """The last bytes of a range are too few for a record, but not for a filler: they count as not zero all the same."""
        window = self._window
        while window.end < high:
            at = window.more(window.filled, 1, high)
            self.nonzero(at, window.filled)

    def count(self, block: Block, state: w.State, window: int) -> None:
        """Count the rows of a block, which ``state`` still counts, too; ``window`` as in ``ScanSettings``."""
        out, items, before = self._summary, block.items, int(state[w.ITEMS_BEFORE])
        if window and len(items.staged):
            self._rises(before, items.staged["time"] // window)
        if before == 0 and len(items.staged):
            has_maker = len(items.makers) and int(items.makers["item"][0]) == 0
            out.first_item_maker = int((items.makers if has_maker else items.staged)["phy_offset"][0])
        out.units += int(state[w.UNITS]) - int(state[w.AGAIN])
        out.lmq_again += int(state[w.AGAIN])
        out.batch_units += int(state[w.BATCHES])
        out.items += len(items.staged)

    def _rises(self, before: int, windows: npt.NDArray[np.int64]) -> None:
        """Note at which items the highest time window so far rises; ``before``: items of the range before these."""
        highest = np.maximum.accumulate(windows)
        seen = highest[0] - 1 if self._highest is None else self._highest
        rises = np.flatnonzero(highest > np.maximum(seen, np.concatenate([[seen], highest[:-1]])))
        # A plan is refused for one rise too many: more are not needed.
        room = WINDOWS_MAX - len(self._summary.windows)
        self._summary.windows += [[before + int(k), int(highest[k])] for k in rises[: max(0, room)]]
        self._highest = max(int(seen), int(highest[-1]))

    def finish(self, state: w.State) -> None:
        """Take over what the record loop counted."""
        self.fillers(state)
        for name, number in _COUNTED.items():
            setattr(self._summary, name, int(state[number]))
