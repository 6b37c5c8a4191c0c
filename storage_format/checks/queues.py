"""Compare the units that a log gives a queue with those that stand in its files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, PRE_BLANK_SIZE
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.storage_format.showing import counted

# ------------------------------------------------------------------------------------------------------------------- unit kinds
# What a slot of a ConsumeQueue file holds beside what the log gives it, and how that is put into words.
#
# ``found``: int64 (3, n) for a plain queue, (8, n) for a batch one: the fields of its unit in their order, a column a slot.

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OK, MISSING, PRE_BLANK, NO_RECORD, SIZE, TAGS, BATCH, OTHER, SHIFTED = range(9)
KINDS: Final = {
    MISSING: "queue-unit-missing",
    PRE_BLANK: "queue-pre-blank",
    NO_RECORD: "queue-unit-no-record",
    SIZE: "queue-unit-size",
    TAGS: "queue-unit-tags",
    BATCH: "queue-unit-batch",
    OTHER: "queue-unit-other",
}
FIELDS: Final = BATCH_LAYOUT.names
"""The fields of a batch unit; a plain one has the first three."""


def is_empty(units: Int64s) -> Mask:
    """Return which slots are all zeros: bool (n,)."""
    empty: Mask = (units == 0).all(axis=0)
    return empty


def is_pre_blank(units: Int64s) -> Mask:
    """Return which slots are (0, 2147483647, 0) (``ConsumeQueue.fillPreBlank``): bool (n,)."""
    blank: Mask = (units[0] == 0) & (units[1] == PRE_BLANK_SIZE) & (units[2] == 0)
    return blank


def is_bad(phy_offset: Int64s, size: Int64s) -> Mask:
    """Return which units cannot point to any record: bool (n,)."""
    bad: Mask = (phy_offset < 0) | (size <= 0) | (phy_offset > INT64_MAX - size)
    return bad


def slot_text(unit: Int64s, expected: Int64s | None = None) -> str:
    """Return what stands in a slot, and what should. Where both are of one record, only the fields that are wrong."""
    fields = unit.tolist()
    if expected is None:
        return named_fields(fields)
    expected_fields = expected[1:].tolist()
    if not any(fields):
        return f"nothing instead of {named_fields(expected_fields)}"
    if fields[0] != expected_fields[0]:
        return f"{named_fields(fields)} instead of {named_fields(expected_fields)}"
    wrong = [k for k, value in enumerate(fields) if value != expected_fields[k]]
    return ", ".join(f"{FIELDS[k]} {fields[k]} instead of {expected_fields[k]}" for k in wrong)


def named_fields(values: Sequence[int], names: Sequence[str] = FIELDS) -> str:
    """Return fields and their values, as ``phy_offset 773, size 222, tagsCode 42``."""
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=False))


# ------------------------------------------------------------------------------------------------------------------- queue view
# What a check of one queue needs to know of its files and its log.


@dataclass(frozen=True)
class QueueView:
    """One queue as a checker reads it.

    - ``read(position, count)``: the fields of slots in the order of their layout, int64 (3 or 8, count); zeros without a file.
    - ``spans``: for each file, in order, the positions of its first slot and behind its last.
    - ``data_from(position)``: the first position from there on that may not be zeros.
    - ``look(phy_offset)``: the queue offset of the queue's good record there, -1 for one of another queue, None for none.
    - ``path(position)``: the slot's file.
    - ``log``: absolute offsets of the log's first byte and its end.
    - ``unread``: stretches [low, high) of the log that were not read.
    - ``stale``: the stretch [low, high) of old records behind the log's end.
    """

    read: Callable[[int, int], Int64s]
    spans: tuple[tuple[int, int], ...]
    data_from: Callable[[int], int]
    look: Callable[[int], int | None]
    path: Callable[[int], str]
    log: tuple[int, int]
    unread: tuple[tuple[int, int], ...] = ()
    batch: bool = False
    stale: tuple[int, int] | None = None
    extended: Callable[[Int64s], tuple[Mask, Mask]] | None = None
    """Returns which of some expected units have another store time in ``consumequeue_ext``, and which lack bits there. Their
    rows have more columns (``udfs.scan.extended``)."""
    extended_kind: str = "queue-ext"
    """the kind of these differences"""


# ----------------------------------------------------------------------------------------------------------------------- queues
# Expected units are columns: position, physical offset, size, tagsCode, and for batch queues the other fields. What a file
# holds has the same columns without the position, and zeros where there is no file.

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
        """Return the name of a slot by the queue offset of its message; in a batch queue, where a unit has many, by its
        number."""
        return f"{'unit' if self._view.batch else 'queue offset'} {position}"

    # -- expected units ---------------------------------------------------------------------------------------------------

    def _stretch(self, rows: Int64s) -> None:
        units, every = self._view.read(int(rows[0, 0]), rows.shape[1]), rows
        rows = rows[: 1 + len(units)]
        equal = (units == rows[1:]).all(axis=0)
        if self._view.extended is not None and equal.any():
            self._check_extended(every[:, equal], self._view.extended)
        if equal.all():
            self._end_run()
            self.there += rows.shape[1]
            return
        code, off = self._classify(rows, units, equal)
        self.there += int(np.count_nonzero((code != MISSING) & (code != PRE_BLANK)))
        if self.first_bad < 0:
            self.first_bad = int(rows[0, np.argmax(code != OK)])
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(code) != 0) | (np.diff(off) != 0)]))
        for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(code)], strict=True):
            self._group(int(code[low]), int(off[low]), int(rows[0, low]), high - low, units[:, low], rows[:, low])

    def _check_extended(self, rows: Int64s, check: Callable[[Int64s], tuple[Mask, Mask]]) -> None:
        """Check the units of ``consumequeue_ext`` to which units lead that have the right tagsCode."""
        texts = "another store time than its record", "bits of a group that takes the message are not set"
        for wrong, text in zip(check(rows), texts, strict=True):
            if wrong.any():
                first = int(rows[0, np.argmax(wrong)])
                if self.first_bad < 0:
                    self.first_bad = first
                path = self._view.path(first)
                self.tally.add(
                    self._view.extended_kind, int(np.count_nonzero(wrong)), path, first, f"{self.named(first)}: {text}"
                )

    def _classify(self, rows: Int64s, units: Int64s, equal: Mask) -> tuple[npt.NDArray[np.int8], Int64s]:
        """Return what each slot is, and how far the unit stands off where that is known."""
        phy_offset, size, tags = units[:3]
        code = np.full(len(phy_offset), OTHER, np.int8)
        off = np.zeros(len(phy_offset), np.int64)
        same_record = phy_offset == rows[1]
        code[same_record] = BATCH
        code[same_record & (tags != rows[3])] = TAGS
        code[same_record & (size != rows[2])] = SIZE
        code[~same_record & is_bad(phy_offset, size)] = NO_RECORD
        if not self._view.batch:
            code[is_pre_blank(units)] = PRE_BLANK
        code[is_empty(units)] = MISSING
        code[equal] = OK
        at = np.minimum(np.searchsorted(rows[1], phy_offset), rows.shape[1] - 1)
        near = (code == OTHER) & (rows[1, at] == phy_offset)
        code[near] = SHIFTED
        off[near] = rows[0, at[near]] - rows[0, near]
        for slot in np.flatnonzero(code == OTHER).tolist():
            offset = self._look(int(phy_offset[slot]))
            if offset is None or offset == rows[0, slot]:
                # The record of this very offset, but damaged: it would be expected else.
                code[slot] = NO_RECORD
            elif offset >= 0:
                code[slot], off[slot] = SHIFTED, offset - rows[0, slot]
        return code, off

    def _group(self, code: int, off: int, position: int, count: int, unit: Int64s, expected: Int64s) -> None:
        """Slots one after another of one kind."""
        if code == SHIFTED:
            if self._run is not None and self._run[1] == off and self._run[0] + self._run[2] == position:
                self._run = (self._run[0], off, self._run[2] + count)
            else:
                self._end_run()
                self._run = (position, off, count)
            return
        # A queue that lost a unit ends that much earlier.
        self._end_run(code == MISSING and self._run is not None and self._run[1] > 0)
        if code != OK:
            path = self._view.path(position)
            self.tally.add(KINDS[code], count, path, position, f"{self.named(position)}: {slot_text(unit, expected)}")

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
            position, end = low, min(high, stop)
            while position < end:
                count = min(_CHUNK, end - position)
                empty = min(self._view.data_from(position), end) - position
                if empty > count:
                    # A queue in RocksDB may have its units as far apart as numbers reach.
                    blank = False
                    self._add_empty(position, empty)
                    position += empty
                    continue
                units = self._view.read(position, count)
                pre = is_pre_blank(units) & blank
                if not pre.all():
                    pre[int(np.argmin(pre)) :] = False
                    blank = False
                self._check_rest(position, units, ~(pre | self._is_gone(units)), before=True)
                position += count

    def _add_empty(self, first: int, count: int) -> None:
        """Add slots before the first expected unit that hold nothing, as ``_check_rest`` adds each."""
        if self.first_bad < 0:
            self.first_bad = first
        text = f"{self.named(first)}: {slot_text(self._view.read(first, 1)[:, 0])}"
        self.tally.add(KINDS[PRE_BLANK], count, self._view.path(first), first, text)

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
            units = self._view.read(position, count)
            odd = ~is_empty(units)
            if alone or self._view.unread:
                odd &= ~self._is_gone(units)
            if blank:
                pre = is_pre_blank(units)
                lead = count if pre.all() else int(np.argmin(pre))
                odd[:lead] = False
                blank = lead == count
            odd = self._without_stale(units, odd)
            if odd.any() and not filled:
                filled = True
                self._end_run(self._run is not None and self._run[1] < 0)
            self._check_rest(position, units, odd, before=False)
            position += count
        self._end_run()

    def _without_stale(self, units: Int64s, odd: Mask) -> Mask:
        if self._view.stale is None:
            return odd
        first = 0
        if not self.stale:
            low, high = self._view.stale
            hits = odd & (units[0] >= low) & (units[0] < high)
            first = int(np.argmax(hits)) if hits.any() else len(odd)
        self.stale += int(np.count_nonzero(odd[first:]))
        return odd & (np.arange(len(odd)) < first)

    def _is_gone(self, units: Int64s) -> Mask:
        """Return which are units of records before the log's first byte, or where it was not read."""
        phy_offset, size = units[:2]
        whole = (phy_offset >= 0) & (size >= RECORD_MIN) & (size != PRE_BLANK_SIZE)
        gone: Mask = whole & (phy_offset < self._view.log[0]) & (phy_offset <= self._view.log[0] - size)
        for low, high in self._view.unread:
            gone |= whole & (phy_offset >= low) & (phy_offset < high)
        return gone

    def _check_rest(self, position: int, units: Int64s, odd: Mask, before: bool) -> None:
        slots = np.flatnonzero(odd)
        if not len(slots):
            return
        if self.first_bad < 0:
            self.first_bad = position + int(slots[0])
        phy_offset, size = units[:2, slots]
        kinds = np.full(len(slots), OTHER, np.int8)
        kinds[is_bad(phy_offset, size)] = NO_RECORD
        if before:
            kinds[(phy_offset <= 0) | (size <= 0) | (size == PRE_BLANK_SIZE)] = PRE_BLANK
        elif not self._view.batch:
            kinds[is_pre_blank(units[:, slots])] = PRE_BLANK
        for k in np.flatnonzero(kinds == OTHER).tolist():
            offset = self._look(int(phy_offset[k]))
            if offset is None:
                kinds[k] = NO_RECORD
            elif before and self._view.unread and offset >= self.first:
                # In the place of a lost record: a sample does not show whether bytes are lost before it.
                kinds[k] = OK
        for kind in np.unique(kinds[kinds != OK]).tolist():
            slots_of_kind = slots[kinds == kind]
            first = position + int(slots_of_kind[0])
            name = "queue-unit-extra" if kind == OTHER else KINDS[kind]
            text = f"{self.named(first)}: {slot_text(units[:, slots_of_kind[0]])}"
            self.tally.add(name, len(slots_of_kind), self._view.path(first), first, text)
