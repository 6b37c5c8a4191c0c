"""Compare the units that a log gives a queue with those that stand in its files: stretch by stretch, in order of position.

Expected units are columns: position, physical offset, size, tagsCode, and for batch queues the other fields. What a file holds
has the same columns without the position, and zeros where there is no file.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.checks import unit_kinds as u
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.queue_view import QueueView
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SHIFT_MIN: Final = 3
"""So many units in a row, each as far off as the others, are a shift; fewer are units that point elsewhere."""
LOOKS_MAX: Final = 10_000
"""Records that are looked up in the log for one queue. Beyond that, a unit that points nowhere counts as one that points
elsewhere."""
_CHUNK: Final = 1 << 16


class UnitChecker:
    """Checks one queue: ``expect`` its units by rising positions, then ``finish``. Differences are in ``tally``."""

    def __init__(self, view: QueueView) -> None:
        self.tally = Tally()
        self.units = self.there = self.stale = 0
        """units that the log gives, how many of their slots hold one, right or wrong, and those behind the log's end"""
        self.first = self.first_bad = self.next = -1
        self._view = view
        self._looks = 0
        self._run: tuple[int, int, int] | None = None
        """units in a row that stand at a wrong position: (first position, how far off, how many)"""

    def expect(self, rows: Int64s) -> None:
        """Take units that the log gives, at rising positions: int64 (4 or 9, n), position first, then the fields of the
        unit."""
        if not rows.shape[1]:
            return
        if self.first < 0:
            self.first = int(rows[0, 0])
            self._before(self.first)
        elif rows[0, 0] != self.next:
            self._end_run()
        cuts = np.flatnonzero(np.diff(rows[0]) != 1) + 1
        for number, part in enumerate(np.split(rows, cuts, axis=1)):
            if number:
                self._end_run()
            for low in range(0, part.shape[1], _CHUNK):
                self._stretch(part[:, low : low + _CHUNK])
        self.next = int(rows[0, -1]) + 1
        self.units += rows.shape[1]

    def finish(self) -> None:
        """The log gives the queue no more units: check the slots behind them."""
        self._behind(max(self.next, 0))

    def named(self, position: int) -> str:
        """A slot by the queue offset of its message; in a batch queue, where a unit has many, by its number."""
        return f"{'unit' if self._view.batch else 'queue offset'} {position}"

    # -- expected units ---------------------------------------------------------------------------------------------------

    def _stretch(self, rows: Int64s) -> None:
        found = self._view.read(int(rows[0, 0]), rows.shape[1])
        equal = (found == rows[1:]).all(axis=0)
        if equal.all():
            self._end_run()
            self.there += rows.shape[1]
            return
        code, off = self._classify(rows, found, equal)
        self.there += int(np.count_nonzero((code != u.MISSING) & (code != u.PRE_BLANK)))
        if self.first_bad < 0:
            self.first_bad = int(rows[0, np.argmax(code != u.OK)])
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(code) != 0) | (np.diff(off) != 0)]))
        for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(code)], strict=True):
            self._group(int(code[low]), int(off[low]), int(rows[0, low]), high - low, found[:, low], rows[:, low])

    def _classify(self, rows: Int64s, found: Int64s, equal: Mask) -> tuple[npt.NDArray[np.int8], Int64s]:
        """What each slot is, and how far the unit stands off where that is known."""
        phy_offset, size, tags = found[:3]
        code = np.full(len(phy_offset), u.OTHER, np.int8)
        off = np.zeros(len(phy_offset), np.int64)
        same = phy_offset == rows[1]
        code[same] = u.BATCH
        code[same & (tags != rows[3])] = u.TAGS
        code[same & (size != rows[2])] = u.SIZE
        code[~same & u.is_bad(phy_offset, size)] = u.NO_RECORD
        if not self._view.batch:
            code[u.is_pre_blank(found)] = u.PRE_BLANK
        code[u.is_empty(found)] = u.MISSING
        code[equal] = u.OK
        at = np.minimum(np.searchsorted(rows[1], phy_offset), rows.shape[1] - 1)
        near = (code == u.OTHER) & (rows[1, at] == phy_offset)
        code[near] = u.SHIFTED
        off[near] = rows[0, at[near]] - rows[0, near]
        for slot in np.flatnonzero(code == u.OTHER).tolist():
            offset = self._look(int(phy_offset[slot]))
            if offset is None or offset == rows[0, slot]:
                # The record of this very offset, but damaged: it would be expected else.
                code[slot] = u.NO_RECORD
            elif offset >= 0:
                code[slot], off[slot] = u.SHIFTED, offset - rows[0, slot]
        return code, off

    def _group(self, code: int, off: int, position: int, count: int, found: Int64s, expected: Int64s) -> None:
        """Slots one after another of one kind."""
        if code == u.SHIFTED:
            if self._run is not None and self._run[1] == off and self._run[0] + self._run[2] == position:
                self._run = (self._run[0], off, self._run[2] + count)
            else:
                self._end_run()
                self._run = (position, off, count)
            return
        # A queue that lost a unit ends that much earlier.
        self._end_run(code == u.MISSING and self._run is not None and self._run[1] > 0)
        if code != u.OK:
            path = self._view.path(position)
            self.tally.add(u.KINDS[code], count, path, position, f"{self.named(position)}: {u.slot_text(found, expected)}")

    def _end_run(self, at_end: bool = False) -> None:
        if self._run is None:
            return
        (first, off, count), self._run = self._run, None
        shifted = count >= SHIFT_MIN or at_end
        text = f"{self.named(first)}: the unit of {self.named(first + off)}"
        if shifted:
            text += f", and so on for {counted(count, 'unit')}"
        self.tally.add("queue-shifted" if shifted else "queue-unit-other", count, self._view.path(first), first, text)

    def _look(self, phy_offset: int) -> int | None:
        low, high = self._view.log
        if not low <= phy_offset < high:
            return None
        self._looks += 1
        return self._view.look(phy_offset) if self._looks <= LOOKS_MAX else -1

    # -- slots for which nothing is expected -------------------------------------------------------------------------------

    def _before(self, stop: int) -> None:
        """From the first file's first slot on: pre-blank, then units whose records have expired."""
        blank = True
        for low, high in self._view.spans:
            for position in range(low, min(high, stop), _CHUNK):
                found = self._view.read(position, min(_CHUNK, high - position, stop - position))
                pre = u.is_pre_blank(found) & blank
                if not pre.all():
                    pre[int(np.argmin(pre)) :] = False
                    blank = False
                self._check_rest(position, found, ~(pre | self._is_gone(found)), before=True)

    def _behind(self, start: int) -> None:
        """Behind the last expected unit: zeros. A queue of which nothing is expected may be expired as a whole.

        From the first unit on that points behind the log's end a broker drops all (``ConsumeQueue.truncateDirtyLogicFiles``).
        """
        high = self._view.spans[-1][1] if self._view.spans else 0
        alone = self.first < 0
        blank, filled = alone, False
        position = start
        while (position := self._view.data_from(position)) < high:
            count = min(_CHUNK, high - position)
            found = self._view.read(position, count)
            odd = ~u.is_empty(found)
            if alone or self._view.unread:
                odd &= ~self._is_gone(found)
            if blank:
                pre = u.is_pre_blank(found)
                lead = count if pre.all() else int(np.argmin(pre))
                odd[:lead] = False
                blank = lead == count
            odd = self._without_stale(found, odd)
            if odd.any() and not filled:
                filled = True
                self._end_run(self._run is not None and self._run[1] < 0)
            self._check_rest(position, found, odd, before=False)
            position += count
        self._end_run()

    def _without_stale(self, found: Int64s, odd: Mask) -> Mask:
        if self._view.stale is None:
            return odd
        first = 0
        if not self.stale:
            low, high = self._view.stale
            hits = odd & (found[0] >= low) & (found[0] < high)
            first = int(np.argmax(hits)) if hits.any() else len(odd)
        self.stale += int(np.count_nonzero(odd[first:]))
        return odd & (np.arange(len(odd)) < first)

    def _is_gone(self, found: Int64s) -> Mask:
        """Units of records before the log's first byte, or where it was not read."""
        phy_offset, size = found[:2]
        whole = (phy_offset >= 0) & (size >= RECORD_MIN) & (size != PRE_BLANK_SIZE)
        gone: Mask = whole & (phy_offset < self._view.log[0]) & (phy_offset <= self._view.log[0] - size)
        for low, high in self._view.unread:
            gone |= whole & (phy_offset >= low) & (phy_offset < high)
        return gone

    def _check_rest(self, position: int, found: Int64s, odd: Mask, before: bool) -> None:
        slots = np.flatnonzero(odd)
        if not len(slots):
            return
        if self.first_bad < 0:
            self.first_bad = position + int(slots[0])
        phy_offset, size = found[:2, slots]
        kinds = np.full(len(slots), u.OTHER, np.int8)
        kinds[u.is_bad(phy_offset, size)] = u.NO_RECORD
        if before:
            kinds[(phy_offset <= 0) | (size <= 0) | (size == PRE_BLANK_SIZE)] = u.PRE_BLANK
        elif not self._view.batch:
            kinds[u.is_pre_blank(found[:, slots])] = u.PRE_BLANK
        for k in np.flatnonzero(kinds == u.OTHER).tolist():
            offset = self._look(int(phy_offset[k]))
            if offset is None:
                kinds[k] = u.NO_RECORD
            elif before and self._view.unread and offset >= self.first:
                # In the place of a lost record: a sample does not show whether bytes are lost before it.
                kinds[k] = u.OK
        for kind in np.unique(kinds[kinds != u.OK]).tolist():
            mine = slots[kinds == kind]
            first = position + int(mine[0])
            name = "queue-unit-extra" if kind == u.OTHER else u.KINDS[kind]
            text = f"{self.named(first)}: {u.slot_text(found[:, mine[0]])}"
            self.tally.add(name, len(mine), self._view.path(first), first, text)
