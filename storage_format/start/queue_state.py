"""A ConsumeQueue while a broker starts: recovered, dispatched to, cut, and told its min offset (``ConsumeQueue``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.start import unit_kernels as k
from rocketmq_reindex.storage_format.start.rules import StartRules
from rocketmq_reindex.storage_format.start.store import StoreFile

_EMPTY = np.zeros(0, np.uint8)
Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


class LoadFailure(Exception):
    """``DefaultMessageStore.load`` ends with an exception, or ``start`` never ends. The fields are those of a Refusal."""

    def __init__(self, kind: str, detail: str, path: str = "") -> None:
        super().__init__(detail)
        self.kind, self.detail, self.path = kind, detail, path


class QueueState:
    """One queue. ``min_logic`` and ``max_logic`` are bytes of its logical length, as in RocketMQ."""

    def __init__(self, files: Sequence[StoreFile], file_size: int) -> None:
        self._size = file_size
        self._given = list(files)
        self._starts = [file.start for file in files]
        self._data: list[npt.NDArray[np.uint8]] = [file.data for file in files]
        self._state = np.zeros(k.STATE_SIZE, np.int64)
        self._state[k.MAX_PHYSIC] = self._state[k.LAST_START] = -1
        self._tail_phy, self._tail_size = np.empty(0, np.int64), np.empty(0, np.int32)
        self._revived = 0

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

    def recover(self) -> None:
        """``recover``: the last three files are valid up to the first unit without a record."""
        if not self._starts:
            return
        index = max(0, len(self._starts) - 3)
        while True:
            data = self._data[index]
            count = int(k.valid_prefix(data, UNIT_SIZE))
            if count:
                last = (count - 1) * UNIT_SIZE
                self._state[k.MAX_PHYSIC] = int64_at(data, last) + int32_at(data, last + UNIT_LAYOUT.at["size"])
            if count * UNIT_SIZE != self._size or index + 1 == len(self._starts):
                break
            index += 1
        end = self._starts[index] + count * UNIT_SIZE
        kept = [at for at, start in enumerate(self._starts) if start <= end]
        self._starts, self._data = [self._starts[at] for at in kept], [self._data[at] for at in kept]
        self._set_last(end % self._size if end < self._starts[-1] + self._size else self._size)

    def _set_last(self, wrote: int) -> None:
        self._state[k.LAST_START] = self._starts[-1] if self._starts else -1
        self._state[k.WROTE] = wrote
        self._state[k.FIRST_CREATED] = 0
        end = int(self._state[k.LAST_START]) + wrote
        tail = int(self._state[k.TAIL])
        if not self._starts:
            self._state[k.TAIL] = 0
        elif tail and end > self._state[k.TAIL_FROM]:
            self._state[k.TAIL] = min(tail, (end - int(self._state[k.TAIL_FROM])) // UNIT_SIZE)
        else:
            self._state[k.TAIL_FROM], self._state[k.TAIL] = end, 0

    def append(self, phy_offset: Int64s, size: Int32s, queue_offset: Int64s) -> None:
        """Dispatch records (``putMessagePositionInfo``), in their order."""
        at = 0
        while at < len(phy_offset):
            made = int(self._state[k.FILES_MADE])
            self._make_room(len(phy_offset) - at)
            done = int(k.append_units(
                phy_offset[at:], size[at:], queue_offset[at:], self._size, self._state, self._tail_phy, self._tail_size
            ))  # fmt: skip
            for number in reversed(range(int(self._state[k.FILES_MADE]) - made)):
                self._starts.append(int(self._state[k.LAST_START]) - number * self._size)
                self._data.append(_EMPTY)
            at += done
            if at < len(phy_offset) and not done:
                self._make_room(len(phy_offset) - at + self._size // UNIT_SIZE)

    def _make_room(self, units: int) -> None:
        want = int(self._state[k.TAIL]) + units
        if want > len(self._tail_phy):
            more = max(want, 2 * len(self._tail_phy)) - len(self._tail_phy)
            self._tail_phy = np.concatenate([self._tail_phy, np.zeros(more, np.int64)])
            self._tail_size = np.concatenate([self._tail_size, np.zeros(more, np.int32)])

    def _content(self, index: int) -> k.FileContent:
        tail = int(self._state[k.TAIL])
        at = int(self._state[k.TAIL_FROM]) - self._starts[index]
        skipped = max(0, -at) // UNIT_SIZE
        return k.FileContent(self._data[index], max(0, at), self._tail_phy[skipped:tail], self._tail_size[skipped:tail])

    def cut(self, phy_offset: int) -> None:
        """``truncateDirtyLogicFiles``."""
        self._state[k.MAX_PHYSIC] = phy_offset
        while self._starts:
            kept, ends = k.cut_file(self._content(len(self._starts) - 1), self._size, phy_offset)
            if kept:
                self._state[k.MAX_PHYSIC] = ends
                self._revive(int(kept))
                self._set_last(int(kept))
                return
            self._starts.pop()
            self._data.pop()
            self._set_last(self._size if self._starts else 0)

    def _revive(self, kept: int) -> None:
        """Old units behind those of this start are read on by a cut: they become part of the tail."""
        tail, start = int(self._state[k.TAIL]), self._starts[-1]
        first = int(self._state[k.TAIL_FROM]) + tail * UNIT_SIZE - start
        if not tail or kept <= first:
            return
        phy_offset, size, _ = _columns(self._data[-1][first:kept])
        self._make_room(len(size))
        self._tail_phy[tail : tail + len(size)] = phy_offset
        self._tail_size[tail : tail + len(size)] = size
        self._state[k.TAIL] += len(size)
        self._revived += int(np.count_nonzero(size != PRE_BLANK_SIZE))

    def correct_min(self, lowest: int, rules: StartRules, path: str) -> None:
        """``correctMinOffset``. Raises LoadFailure where it throws; ``path`` is the queue's folder."""
        if not rules.searches_min_offset:
            end = self._end_of(0) if self._starts else 0
            found = int(k.first_min(self._content(0), end, lowest)) if end else -1
            if found >= 0:
                self._state[k.MIN_LOGIC] = self._starts[0] + found
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
            detail = f"the recovery leaves no unit in the last file, {self._starts[-1]:020d}"
            raise LoadFailure("queue-last-file-empty", detail, path)
        if wrote:
            last, _ = k.unit_at(self._content(len(self._starts) - 1), wrote - UNIT_SIZE)
            if last < lowest:
                self._state[k.MIN_LOGIC] = maximum
                return
        start = max(0, minimum - self._starts[0])
        end = self._end_of(0)
        if start >= end:
            return
        first = self._content(0)
        if minimum >= self._starts[0] and k.unit_at(first, start)[0] >= lowest:
            return
        found = int(k.search_min(first, start, end, lowest))
        if found >= 0:
            self._state[k.MIN_LOGIC] = self._starts[0] + found

    def _end_of(self, index: int) -> int:
        return int(self._state[k.WROTE]) if index + 1 == len(self._starts) else self._size

    def destroy(self) -> None:
        """``destroy``: all files go."""
        self._starts, self._data = [], []
        self._state[:] = 0
        self._state[k.MAX_PHYSIC] = self._state[k.LAST_START] = -1

    @property
    def units_added(self) -> int:
        """Units that this start appended, without those that stand for none."""
        tail = int(self._state[k.TAIL])
        return tail - int(np.count_nonzero(self._tail_size[:tail] == PRE_BLANK_SIZE)) - self._revived

    @property
    def units_cut(self) -> int:
        """Units of the given files behind the end of those that are kept."""
        if not self._starts:
            kept = -1
        else:
            kept = int(self._state[k.TAIL_FROM]) if self._state[k.TAIL] else self.max_logic
        behind = sum(
            int(k.count_valid(file.data, min(file.size, max(0, kept - file.start)), UNIT_SIZE)) for file in self._given
        )
        return behind - self._revived

    def pointed_to(self) -> Int64s:
        """The physical offsets that the units from the min offset on point to, ascending."""
        lowest, parts = int(self._state[k.MIN_LOGIC]), []
        for index, (start, data) in enumerate(zip(self._starts, self._data, strict=True)):
            end = min(len(data), self._end_of(index))
            if self._state[k.TAIL]:
                end = min(end, int(self._state[k.TAIL_FROM]) - start)
            found, sizes, places = _columns(data[: max(0, end - end % UNIT_SIZE)])
            # A unit is looked for at its offset modulo the file's size, wherever the file's name says that it begins.
            places = start + (places - start) % self._size
            parts.append(found[(sizes != PRE_BLANK_SIZE) & (places >= lowest) & (places < self.max_logic)])
        tail = int(self._state[k.TAIL])
        if tail:
            skipped = min(tail, max(0, lowest - int(self._state[k.TAIL_FROM])) // UNIT_SIZE)
            own = self._tail_phy[skipped:tail]
            parts.append(own[self._tail_size[skipped:tail] != PRE_BLANK_SIZE])
        return ascending(parts)


def _columns(data: npt.NDArray[np.uint8]) -> tuple[Int64s, Int32s, Int64s]:
    """Offset, size and place of each unit in ``data``."""
    units = data.view(UNIT)
    return (
        units["phy_offset"].astype(np.int64), units["size"].astype(np.int32), np.arange(len(units), dtype=np.int64) * UNIT_SIZE
    )  # fmt: skip


def ascending(parts: list[Int64s]) -> Int64s:
    """All numbers of ``parts``, ascending."""
    found = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(found) > 1 and (found[1:] < found[:-1]).any():
        found = np.sort(found)
    return found
