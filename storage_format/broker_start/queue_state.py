"""A ConsumeQueue while a broker starts: recovered, dispatched to, cut, and told its min offset (``ConsumeQueue``)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import (
    kept as start_kept,
    own_units,
    store,
    unit_kernels as k,
)
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at, int64_at
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.versions import StartRules

_EMPTY: Final = np.zeros(0, np.uint8)
_NO_STARTS: Final = array("q")
_NOT_LOOKED_AT: Final = array("q")
Int32s = npt.NDArray[np.int32]


class LoadFailure(Exception):
    """``DefaultMessageStore.load`` ends with an exception, or ``start`` never ends. The fields are those of a Refusal."""

    def __init__(self, kind: str, detail: str, path: str = "") -> None:
        super().__init__(detail)
        self.kind, self.detail, self.path = kind, detail, path


class QueueState:
    """One queue. ``min_logic`` and ``max_logic`` are bytes of its logical length, as in RocketMQ."""

    __slots__ = (
        "_given", "_kept", "_numbers", "_own", "_revived", "_revived_blanks", "_row", "_size", "_spans", "_starts",
        "ends_blank",
    )  # fmt: skip

    def __init__(
        self, files: Sequence[store.StoreFile], file_size: int, spool: start_kept.Spool, numbers: own_units.QueueNumbers
    ) -> None:
        self._size = file_size
        self._given, self._kept = files, len(files)
        """how many of the files that were given are there: those that this start made follow them"""
        self._starts = array("q", [file.start for file in files]) if files else _NO_STARTS
        self._numbers, self._row = numbers, numbers.add()
        self._state[k.MAX_PHYSIC] = self._state[k.LAST_START] = -1
        self._own = own_units.OwnUnits(spool, numbers, self._row)
        self._revived = 0
        self._revived_blanks = 0
        self._spans = _NOT_LOOKED_AT
        """four numbers for each given file: whether its units ascend, the lowest and the highest, where they end"""
        self.ends_blank = False
        """whether the queue ends in a file that this start began, whose one unit is of zeros, so that all units before it are
        below the min offset"""

    @property
    def _state(self) -> start_kept.Int64s:
        state: start_kept.Int64s = self._numbers.rows[self._row]
        return state

    def _keep(self, count: int) -> None:
        """Keep the first files."""
        self._starts, self._kept = self._starts[:count], min(self._kept, count)

    @property
    def max_physic(self) -> int:
        """``getMaxPhysicOffset``: where the record of the last unit ends; -1 for none."""
        return int(self._state[k.MAX_PHYSIC])

    @property
    def max_logic(self) -> int:
        """``MappedFileQueue.getMaxOffset``."""
        return int(self._state[k.LAST_START] + self._state[k.WROTE]) if self._starts else 0

    @property
    def min_offset(self) -> int:
        """``getMinOffsetInQueue``."""
        return int(self._state[k.MIN_LOGIC]) // UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """``getMaxOffsetInQueue``."""
        return self.max_logic // UNIT_SIZE

    @property
    def first_unit(self) -> int:
        """The physical offset in the unit at position 0; -1 where consumers have none there."""
        return self._unit(0)[0] if self.max_logic and not self._starts[0] and not self._state[k.MIN_LOGIC] else -1

    def recover(self) -> None:
        """``recover``: the last three files are valid up to the first unit without a record."""
        if not self._starts:
            return
        index = max(0, len(self._starts) - 3)
        while True:
            data = self._bytes(index)
            count = int(k.valid_prefix(data, UNIT_SIZE))
            if count:
                last = (count - 1) * UNIT_SIZE
                self._state[k.MAX_PHYSIC] = int64_at(data, last) + int32_at(data, last + UNIT_LAYOUT.at["size"])
            if count * UNIT_SIZE != self._size or index + 1 == len(self._starts):
                break
            index += 1
        end = self._starts[index] + count * UNIT_SIZE
        self._keep(bisect_right(self._starts, end))
        self._set_last(end % self._size if end < self._starts[-1] + self._size else self._size)

    def _set_last(self, wrote: int) -> None:
        self._state[k.LAST_START] = self._starts[-1] if self._starts else -1
        self._state[k.WROTE] = wrote
        self._state[k.FIRST_CREATED] = 0
        end = int(self._state[k.LAST_START]) + wrote
        if not self._starts:
            self._own.clear()
        elif self._own.count and end > self._state[k.TAIL_FROM]:
            self._own.truncate((end - int(self._state[k.TAIL_FROM])) // UNIT_SIZE)
        else:
            self._state[k.TAIL_FROM] = end
            self._own.clear()

    def append(
        self, phy_offset: start_kept.Int64s, size: Int32s, queue_offset: start_kept.Int64s, elsewhere: npt.NDArray[np.bool_]
    ) -> None:
        """Dispatch records (``putMessagePositionInfo``), in their order. Those ``elsewhere`` lie where they do not say, and do
        not count as moved."""
        made, moved, held = (int(self._state[at]) for at in (k.FILES_MADE, k.MOVED, k.TAIL))
        units = self._own
        units.make_room(len(size))
        k.append_units(phy_offset, size, queue_offset, self._size, self._state, units.phy_offset, units.size)
        if self._state[k.MOVED] > moved and (self._given or elsewhere.any()):
            self._state[k.MOVED] -= self._not_moved(phy_offset, queue_offset, elsewhere, held)
        if files_added := int(self._state[k.FILES_MADE]) - made:
            last = int(self._state[k.LAST_START])
            self._starts = self._starts + array("q", range(last - (files_added - 1) * self._size, last + 1, self._size))

    def _not_moved(
        self, phy_offset: start_kept.Int64s, queue_offset: start_kept.Int64s, elsewhere: npt.NDArray[np.bool_], first: int
    ) -> int:
        """Return how many units in memory, from number ``first`` on, are below the offset of their record and are not counted:
        their record lies elsewhere, or the given files had the same unit there."""
        held = int(self._state[k.TAIL])
        own_offset, own_size, order = self._own.phy_offset[first:held], self._own.size[first:held], np.argsort(phy_offset)
        rows = order[np.searchsorted(phy_offset[order], own_offset)]
        places = int(self._state[k.TAIL_FROM]) + (self._own.count - held + np.arange(first, held)) * UNIT_SIZE
        is_below = queue_offset[rows] * UNIT_SIZE > places
        not_moved = is_below & elsewhere[rows]
        for file in self._given:
            # To look at a file opens it.
            if file.start > places[-1] or file.start + self._size <= places[0]:
                continue
            units = file.data[: len(file.data) // UNIT_SIZE * UNIT_SIZE].view(UNIT)
            inside = np.flatnonzero(is_below & (places >= file.start) & (places < file.start + len(units) * UNIT_SIZE))
            there = units[(places[inside] - file.start) // UNIT_SIZE]
            not_moved[inside] |= (there["phy_offset"] == own_offset[inside]) & (there["size"] == own_size[inside])
            file.let_go(0, file.size)
        return int(np.count_nonzero(not_moved))

    @property
    def moved(self) -> int:
        """Units that this start made of records with a higher queue offset than the unit's."""
        return int(self._state[k.MOVED])

    @property
    def room(self) -> int:
        """For how many units of this start there is room in memory."""
        return self._own.room

    def spill(self) -> None:
        """Put the units of this start into the spool."""
        self._own.spill()

    def _bytes(self, index: int) -> npt.NDArray[np.uint8]:
        return self._given[index].data if index < self._kept else _EMPTY

    def _content(self, index: int) -> k.FileContent:
        at = int(self._state[k.TAIL_FROM]) - self._starts[index]
        first = max(0, -at) // UNIT_SIZE
        phy_offset, size = self._own.read(first, first + (self._size - max(0, at)) // UNIT_SIZE)
        return k.FileContent(self._bytes(index), max(0, at), phy_offset, size)

    def _unit(self, logical: int) -> tuple[int, int]:
        """Return offset and size of the unit at byte ``logical`` of the queue; (0, 0) where its file ends before it."""
        number = self._own_number(logical)
        if number is not None:
            phy_offset, size = self._own.read(number, number + 1)
            return int(phy_offset[0]), int(size[0])
        index = bisect_right(self._starts, logical) - 1
        data, at = self._bytes(index), logical - self._starts[index]
        if at + UNIT_SIZE > len(data):
            return 0, 0
        return int64_at(data, at), int32_at(data, at + UNIT_LAYOUT.at["size"])

    def _own_number(self, logical: int) -> int | None:
        """Return the number, among the units of this start, of the one at byte ``logical`` of the queue; None if it is not of
        them."""
        number = (logical - int(self._state[k.TAIL_FROM])) // UNIT_SIZE
        return number if 0 <= number < self._own.count else None

    def cut(self, phy_offset: int) -> None:
        """``truncateDirtyLogicFiles``."""
        self._state[k.MAX_PHYSIC] = phy_offset
        while self._starts:
            if self._unit(self._starts[-1])[0] < phy_offset:
                kept, ends = k.cut_file(self._content(len(self._starts) - 1), self._size, phy_offset)
                self._state[k.MAX_PHYSIC] = ends
                self._revive(int(kept))
                self._set_last(int(kept))
                return
            self._keep(len(self._starts) - 1)
            self._set_last(self._size if self._starts else 0)

    def _revive(self, kept: int) -> None:
        """Old units behind those of this start are read on by a cut: they become part of the tail."""
        first = int(self._state[k.TAIL_FROM]) + self._own.count * UNIT_SIZE - self._starts[-1]
        if not self._own.count or kept <= first:
            return
        phy_offset, size, _ = _columns(self._bytes(len(self._starts) - 1)[first:kept])
        self._own.extend(phy_offset, size)
        blanks = int(np.count_nonzero(size == PRE_BLANK_SIZE))
        self._revived, self._revived_blanks = self._revived + len(size) - blanks, self._revived_blanks + blanks

    def correct_min(self, lowest: int, rules: StartRules, path: str) -> None:
        """``correctMinOffset``. Raises LoadFailure where it throws; ``path`` is the queue's folder."""
        if not rules.searches_min_offset:
            end = self._end_of(0) if self._starts else 0
            position = int(k.first_min(self._content(0), end, lowest)) if end else -1
            if position >= 0:
                self._state[k.MIN_LOGIC] = self._starts[0] + position
            return
        if not self._starts:
            if rules.resets_empty_queue:
                self._state[k.MIN_LOGIC], self._state[k.MAX_PHYSIC] = 0, -1
            return
        minimum, maximum = int(self._state[k.MIN_LOGIC]), self.max_logic
        if minimum > maximum or (minimum == maximum and not rules.resets_empty_queue):
            return
        wrote = int(self._state[k.WROTE])
        if wrote == 0 and rules.empty_file_fails:
            last = f"{path}/{self._starts[-1]:020d}"
            raise LoadFailure("queue-last-file-empty", "the recovery leaves no unit in the queue's last file", last)
        if wrote and self._unit(maximum - UNIT_SIZE)[0] < lowest:
            self._state[k.MIN_LOGIC] = maximum
            # A cut keeps the first unit of a file that a record below the queue's end began, though none was written.
            self.ends_blank = (
                wrote == UNIT_SIZE and self._kept < len(self._starts) and self._own_number(self._starts[-1]) is None
            )
            return
        start = max(0, minimum - self._starts[0])
        end = self._end_of(0)
        if start >= end:
            return
        if minimum >= self._starts[0] and self._unit(minimum)[0] >= lowest:
            return
        position = int(k.search_min(self._content(0), start, end, lowest))
        if position >= 0:
            self._state[k.MIN_LOGIC] = self._starts[0] + position

    def _end_of(self, index: int) -> int:
        return int(self._state[k.WROTE]) if index + 1 == len(self._starts) else self._size

    def destroy(self) -> None:
        """``destroy``: all files go."""
        self._keep(0)
        self._own.clear()
        self._state[:] = 0
        self._state[k.MAX_PHYSIC] = self._state[k.LAST_START] = -1

    @property
    def units_added(self) -> int:
        """Units that this start appended, without those that stand for none."""
        return self._own.count - self._own.blanks - self._revived_blanks - self._revived

    @property
    def units_cut(self) -> int:
        """Units of the given files behind the end of those that are kept."""
        if not self._starts:
            kept = -1
        else:
            kept = int(self._state[k.TAIL_FROM]) if self._own.count else self.max_logic
        behind = 0
        for file in self._given:
            at = max(0, kept - file.start)
            for low, end in file.parts(at) if at < file.size else ():
                # Most of a queue's last file was never written.
                at += max(0, low - at) // UNIT_SIZE * UNIT_SIZE
                end = min(file.size, end + UNIT_SIZE)
                behind += int(k.count_valid(file.data[:end], at, UNIT_SIZE))
                at += max(0, end - at) // UNIT_SIZE * UNIT_SIZE
                file.let_go(0, file.size)
        return behind - self._revived

    def passed_over(self, segment_size: int) -> tuple[int, int]:
        """Return what a consumer from the min offset on is not given: (how many messages, the queue offset where it is given
        some).

        A start of 5.x and 4.9 takes for a queue's first units those that stand for none (``fillPreBlank``), in a log that
        begins at 0.
        """
        lowest = int(self._state[k.MIN_LOGIC])
        index = bisect_right(self._starts, lowest) - 1
        if index < 0 or self._unit(lowest)[1] != PRE_BLANK_SIZE:
            return 0, self.min_offset
        start, end = self._starts[index], self._end_of(index)
        passed, at, last = k.passed_over(self._content(index), lowest - start, end - end % UNIT_SIZE, segment_size)
        following = start + int(at)
        if last >= 0 and following < self.max_logic and self._unit(following)[0] == last:
            # The units before it stand for missing offsets, and it is given.
            passed -= 1
        return int(passed), following // UNIT_SIZE

    def _span_of(self, index: int) -> array[int]:
        """Return what ``_spans`` says of a file, which is looked at once."""
        span = self._spans[4 * index : 4 * index + 4]
        if span[3] < 0:
            file = self._given[index]
            end = min(file.size, self._end_of(index))
            if self._own.count:
                end = max(0, min(end, int(self._state[k.TAIL_FROM]) - self._starts[index]))
            end -= end % UNIT_SIZE
            span = array("q", map(int, (*(k.span_of(file.data, end) if end else (0, 0, -1)), end)))
            self._spans[4 * index : 4 * index + 4] = span
            file.let_go(0, end)
        return span

    def are_pointed_to(self, offsets: start_kept.Int64s) -> npt.NDArray[np.bool_]:
        """Return which of the physical ``offsets``, ascending, units from the min offset on point to."""
        pointed_to = np.zeros(len(offsets), np.bool_)
        lowest, highest, low, high = int(self._state[k.MIN_LOGIC]), self.max_logic, int(offsets[0]), int(offsets[-1])
        own_from = int(self._state[k.TAIL_FROM])
        if not self._spans:
            self._spans = array("q", (0, 0, -1, -1)) * self._kept
        for index, start in enumerate(self._starts[: self._kept]):
            ascends, lowest_offset, highest_offset, end = self._span_of(index)
            if lowest_offset <= high and highest_offset >= low:
                file = self._given[index]
                k.mark_pointed(file.data, end, bool(ascends), start, self._size, lowest, highest, offsets, pointed_to)
                file.let_go(0, end)
        skipped = max(0, lowest - own_from) // UNIT_SIZE
        for first, phy_offset, size in self._own.pointing(low, high):
            begin = max(0, skipped - first)
            own_offsets = phy_offset[begin:][size[begin:] != PRE_BLANK_SIZE]
            own_offsets = own_offsets[(own_offsets >= low) & (own_offsets <= high)]
            pointed_to |= start_kept.are_among(offsets, ascending(own_offsets))
        return pointed_to


def _columns(data: npt.NDArray[np.uint8]) -> tuple[start_kept.Int64s, Int32s, start_kept.Int64s]:
    """Return offset, size and place of each unit in ``data``."""
    units = data.view(UNIT)
    return (
        units["phy_offset"].astype(np.int64), units["size"].astype(np.int32), np.arange(len(units), dtype=np.int64) * UNIT_SIZE
    )  # fmt: skip


def ascending(numbers: start_kept.Int64s) -> start_kept.Int64s:
    """Return the numbers, ascending."""
    return np.sort(numbers) if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any() else numbers
