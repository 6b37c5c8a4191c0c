"""A ConsumeQueue in RocksDB while a broker starts: dispatched to, cut, and told its ends (``RocksDBConsumeQueueOffsetTable``).

A unit stands under its queue offset: a record that is dispatched again takes the place of the unit there. Where a queue ends
is a pair of its own, which each dispatch sets to its last record. Where it begins is worked out when it is first asked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import kept as start_kept
from rocketmq_reindex.storage_format.layouts import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.queue.rocksdb import DatabaseQueue, NoUnits, QueuePlace, UnitReader

Int64s = npt.NDArray[np.int64]
_WINDOW: Final = 1 << 16
"""queue offsets that are looked at at once"""
_BATCH: Final = 256
"""records whose units are put at once at most (``RocksGroupCommitService``)"""
_PART: Final = 4
"""numbers of a part in the spool: its place, how many units, the lowest and the highest queue offset"""
_BLOCK: Final = 4
"""numbers of a block in the spool: its place, how many offsets, the lowest and the highest physical offset"""
_NO_NUMBERS: Final = np.empty(0, np.int64)


class DatabaseQueueState:
    """One queue. ``last`` and ``first`` are the pairs that a broker has of it; None where it has none."""

    __slots__ = (
        "_again", "_blocks", "_gap", "_given", "_held", "_parts", "_reader", "_spool", "first", "last", "room", "units_added",
    )  # fmt: skip

    def __init__(self, given: DatabaseQueue, reader: UnitReader, spool: start_kept.Spool) -> None:
        self._given, self._reader, self._spool = given, reader, spool
        self.last, self.first = given.last, given.first
        self._held: list[tuple[Int64s, Int64s]] = []
        """units of this start in memory: queue offsets, and where they lead"""
        self._parts = array("q")
        self._blocks: array[int] | None = None
        self._gap = -1, 0
        self._again = False
        """whether queue offsets of records that were dispatched one behind the other repeat, or go back"""
        self.room = 0
        self.units_added = 0

    @property
    def max_physic(self) -> int:
        """``getMaxPhysicOffset``: the physical offset in the last unit; -1 for none."""
        return -1 if self.last is None else self.last.phy_offset

    @property
    def max_offset(self) -> int:
        """``getMaxOffsetInQueue``."""
        return 0 if self.last is None else self.last.queue_offset + 1

    @property
    def min_offset(self) -> int:
        """``getMinOffsetInQueue``, once ``correct_min`` was called."""
        return 0 if self.first is None else self.first.queue_offset

    @property
    def units_cut(self) -> int:
        """Queue offsets that were served before the start, and are not after it, since the queue ends before them."""
        return 0 if self._given.last is None else max(0, self._given.last.queue_offset + 1 - max(0, self.max_offset))

    @property
    def first_unit(self) -> int:
        """The physical offset in the unit at queue offset 0; -1 where consumers have none there."""
        if self.min_offset > 0 or self.max_offset <= 0:
            return -1
        place = self._phy_offset(0)
        return -1 if place is None else place

    def append(self, phy_offset: Int64s, queue_offset: Int64s) -> None:
        """Dispatch records, in their order (``RocksDBConsumeQueueStore.putMessagePosition``)."""
        if len(phy_offset):
            places, offsets = phy_offset, queue_offset
            if self.units_added and self.last is not None:
                places, offsets = (np.concatenate(([old], new)) for old, new in zip(self.last, (places, offsets), strict=True))
            self._again = self._again or bool(((np.diff(places) > 0) & (np.diff(offsets) <= 0)).any())
            self._held.append((queue_offset.copy(), phy_offset.copy()))
            self.room += len(phy_offset)
            self.units_added += len(phy_offset)
            self.last = QueuePlace(int(phy_offset[-1]), int(queue_offset[-1]))

    def undecided(self) -> int | None:
        """Return a queue offset for which more than one record may stand after the start; None for none.

        A broker puts the units of at most _BATCH records at once, the newest first: of two under one key the oldest is there
        then. Which records come together depends on the time.
        """
        if not self._again:
            return None
        offsets, places = (np.concatenate(columns) for columns in zip(*self._own(INT64_MIN, INT64_MAX), strict=True))
        turn = np.arange(len(offsets))
        order = np.lexsort((turn, offsets))
        offsets, places, turn = offsets[order], places[order], turn[order]
        ends = np.flatnonzero(np.concatenate((offsets[1:] != offsets[:-1], [True])))
        last = np.repeat(ends, np.diff(np.concatenate(([-1], ends))))
        odd = (places != places[last]) & (turn[last] - turn < _BATCH)
        return int(offsets[np.argmax(odd)]) if odd.any() else None

    def spill(self) -> None:
        """Put the units of this start into the spool."""
        if self._held:
            queue_offset, phy_offset = (np.concatenate(columns) for columns in zip(*self._held, strict=True))
            place = self._spool.put(queue_offset.tobytes() + phy_offset.tobytes())
            self._parts.extend((place, len(queue_offset), int(queue_offset.min()), int(queue_offset.max())))
            self._held, self.room = [], 0

    def _own(self, low: int, high: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield units of this start at queue offsets [low, high), in the order in which they were put."""
        for at in range(0, len(self._parts), _PART):
            place, count, lowest, highest = self._parts[at : at + _PART]
            if lowest < high and highest >= low:
                data = self._spool.get(place, 16 * count).view(np.int64)
                yield _within(data[:count], data[count:], low, high)
        for queue_offset, phy_offset in self._held:
            yield _within(queue_offset, phy_offset, low, high)

    def _phy_offset(self, queue_offset: int) -> int | None:
        """Return where the unit at a queue offset leads; None where there is none."""
        own = [phy for _, phy in self._own(queue_offset, queue_offset + 1) if len(phy)]
        return int(own[-1][-1]) if own else self._reader.phy_offset(self._given.name, queue_offset)

    def _search(self, target: int, lowest: bool) -> QueuePlace | None:
        """``binarySearchInCQ`` from the first to the last unit: of those that lead to ``target`` or behind it the lowest that
        it finds, or of those before it the highest."""
        assert self.last is not None
        low, high, found = self.min_offset, self.last.queue_offset, None
        while high >= low:
            middle = low + ((high - low) >> 1)
            place = self._phy_offset(middle)
            if place is None or place < target:
                low = middle + 1
                if place is not None and not lowest:
                    found = QueuePlace(place, middle)
                continue
            if lowest:
                found = QueuePlace(place, middle)
            if place == target:
                break
            high = middle - 1
        return found

    def correct_min(self, lowest: int) -> None:
        """``getMinCqOffset``, as often as it takes until its answer stays. ``lowest`` is the log's first byte."""
        if self.first is not None and self.first.phy_offset >= lowest:
            return
        if self.last is None:
            self.first = QueuePlace(lowest, 0)
        elif self.last.phy_offset < lowest:
            self.first = QueuePlace(lowest, self.last.queue_offset + 1)
        else:
            found = self._search(lowest, lowest=True)
            if found is not None:
                self.first = found
            elif self.last.queue_offset != self.min_offset:
                self.first = self.last

    def cut(self, end: int, lowest: int) -> None:
        """``truncateDirtyOffset``: a queue whose last unit leads to ``end`` or behind it ends before that."""
        if self.last is None or self.last.phy_offset < end:
            return
        self.correct_min(lowest)
        # RocketMQ fails here on a queue all of whose units are to be cut, logs that, and leaves them.
        if self.first is None or self.first.phy_offset > end:
            return
        found = self._search(end, lowest=False)
        if found is not None:
            self.last = found
        elif self.last.queue_offset != self.first.queue_offset:
            self.last = self.first

    def _visible(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield queue offsets, ascending, and where they lead, of all units that consumers are given."""
        first, stop = max(0, self.min_offset), self.max_offset
        for queue_offset, phy_offset in self._reader.phy_offsets(self._given.name, first, stop):
            behind = int(queue_offset[-1]) + 1
            yield from self._merged(first, behind, queue_offset, phy_offset)
            first = behind
        yield from self._merged(first, stop, _NO_NUMBERS, _NO_NUMBERS)

    def _merged(self, first: int, stop: int, queue_offset: Int64s, phy_offset: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield units at [first, stop): those that are given, and those of this start, which take their places."""
        while (low := self._lowest(first, stop, queue_offset)) is not None:
            high = min(stop, low + _WINDOW)
            parts = [_within(queue_offset, phy_offset, low, high), *self._own(low, high)]
            offsets, places = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            # Of more than one unit under a key the one that was put last is there.
            numbers, at = np.unique(offsets[::-1], return_index=True)
            yield numbers, places[::-1][at]
            first = high

    def _lowest(self, first: int, stop: int, given: Int64s) -> int | None:
        """Return the lowest queue offset in [first, stop) that has a unit; None for none."""
        lowest = [int(given[at])] if (at := int(np.searchsorted(given, first))) < len(given) else []
        lowest += [int(offsets.min()) for offsets, _ in self._own(first, stop) if len(offsets)]
        return min(lowest, default=None)

    def _settled(self) -> array[int]:
        """Return the blocks of all units that consumers are given. It reads them all, once."""
        if self._blocks is None:
            self._blocks = array("q")
            expected, missing_at, behind = max(0, self.min_offset), -1, 0
            for numbers, places in self._visible():
                odd = np.flatnonzero(numbers != np.arange(expected, expected + len(numbers)))
                if missing_at < 0 and len(odd):
                    missing_at = expected + int(odd[0])
                behind += int(np.count_nonzero(numbers > missing_at)) if missing_at >= 0 else 0
                expected = int(numbers[-1]) + 1
                places = np.sort(places)
                self._blocks.extend((self._spool.put(places.tobytes()), len(places), int(places[0]), int(places[-1])))
            if missing_at < 0 and expected < self.max_offset:
                missing_at = expected
            self._gap = missing_at, behind
        return self._blocks

    def gap(self) -> tuple[int, int]:
        """Return the first queue offset between the ends that has no unit, or -1, and how many units stand behind it."""
        self._settled()
        return self._gap

    def are_pointed_to(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return which of the physical ``offsets``, ascending, units that consumers are given lead to."""
        pointed_to = np.zeros(len(offsets), np.bool_)
        blocks = self._settled()
        for at in range(0, len(blocks), _BLOCK):
            place, count, low, high = blocks[at : at + _BLOCK]
            if low <= int(offsets[-1]) and high >= int(offsets[0]):
                pointed_to |= start_kept.are_among(offsets, self._spool.get(place, 8 * count).view(np.int64))
        return pointed_to

    def destroy(self) -> None:
        """``destroy``: all units go. The broker goes on with the queue's end until it starts again: it has that in memory."""
        self._reader = NoUnits()
        if self.last is not None:
            self.last = QueuePlace(-1, self.last.queue_offset)
        self.first = QueuePlace(0, 0)


def _within(queue_offset: Int64s, phy_offset: Int64s, low: int, high: int) -> tuple[Int64s, Int64s]:
    inside = (queue_offset >= low) & (queue_offset < high)
    return queue_offset[inside], phy_offset[inside]
