"""A batch ConsumeQueue while a broker starts (``BatchConsumeQueue`` of 5.x). Such queues are few."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import kept, queue_state, store
from rocketmq_reindex.storage_format.queue.consume_queue import BATCH_UNIT
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE

Units = npt.NDArray[np.void]


class BatchQueueState:
    """One batch queue. ``max_physic`` is where its last record begins, unlike that of other queues."""

    def __init__(self, files: Sequence[store.StoreFile], file_size: int, spool: kept.Spool) -> None:
        self._room = file_size // BATCH_UNIT_SIZE
        self._size = file_size
        self._spool = spool
        self._given = files
        self._starts = [file.start for file in files]
        self._files: list[store.StoreFile | Units] = list(files)
        """of a file that this start writes to, its units"""
        self._wrote = [self._room] * len(files)
        self._first_created = False
        self.max_physic = -1
        self.min_offset, self.max_offset = -1, 0
        self.units_added = 0
        self._kept_of_given = sum(self._wrote)

    @property
    def first_unit(self) -> int:
        """The physical offset in the first unit, where that begins at offset 0; -1 where consumers have none there."""
        return int(self._units(0)["phy_offset"][0]) if self._starts and self.min_offset == 0 else -1

    room = 0
    """units of this start in memory: they are written into the spool's room"""

    def spill(self) -> None:
        """Nothing: no units are in memory."""

    def _units(self, index: int) -> Units:
        file = self._files[index]
        return _units(file.data) if isinstance(file, store.StoreFile) else file

    def _writable(self) -> Units:
        """Return the units of the last file, to write to."""
        file = self._files[-1]
        if not isinstance(file, store.StoreFile):
            return file
        made = self._new_file()
        loaded = _units(file.data)
        made[: len(loaded)] = loaded
        self._files[-1] = made
        return made

    def _new_file(self) -> Units:
        return self._spool.room(self._room * BATCH_UNIT_SIZE).view(BATCH_UNIT)

    def recover(self) -> None:
        """``recover``: the last three files are valid up to the first unit without a record."""
        if not self._starts:
            return
        index = max(0, len(self._starts) - 3)
        while True:
            units = self._units(index)
            count = _valid(units)
            if count:
                self.max_physic = int(units["phy_offset"][count - 1])
            if count != self._room or index + 1 == len(self._starts):
                break
            index += 1
        keep = index + 1
        del self._starts[keep:], self._files[keep:], self._wrote[keep:]
        self._wrote[-1] = count
        self._kept_of_given = sum(self._wrote)
        self._revise()

    def _revise_min(self) -> None:
        if not self._starts:
            self.max_offset, self.min_offset = 0, -1
        else:
            self.min_offset = int(self._units(0)["base"][0]) if self._wrote[0] else -1

    def _revise(self) -> None:
        self._revise_min()
        self.max_offset = 0
        for index in range(len(self._starts) - 1, max(-1, len(self._starts) - 3), -1):
            if self._wrote[index]:
                last = self._units(index)[self._wrote[index] - 1]
                self.max_offset = int(last["base"]) + int(last["count"])
                return

    def append(
        self, phy_offset: kept.Int64s, size: npt.NDArray[np.int32], base: kept.Int64s, count: npt.NDArray[np.int16]
    ) -> None:
        """Dispatch records (``putBatchMessagePositionInfo``), in their order."""
        for at, (phy, messages) in enumerate(zip(phy_offset.tolist(), count.tolist(), strict=True)):
            if phy <= self.max_physic:
                continue
            if not self._starts or self._wrote[-1] == self._room:
                self._first_created = not self._starts
                self._starts.append(self._starts[-1] + self._size if self._starts else 0)
                self._files.append(self._new_file())
                self._wrote.append(0)
            unit = self._writable()[self._wrote[-1] : self._wrote[-1] + 1]
            unit["phy_offset"], unit["size"], unit["base"], unit["count"] = phy, size[at], base[at], messages
            self._wrote[-1] += 1
            self.units_added += 1
            self.max_physic, self.max_offset = phy, int(base[at]) + messages
            if self._first_created and self.min_offset == -1:
                self._revise_min()

    def cut(self, phy_offset: int) -> None:
        """``truncateDirtyLogicFiles``."""
        before = sum(self._wrote)
        self.max_physic = phy_offset - 1
        while self._starts:
            units = self._units(len(self._starts) - 1)
            if int(units["phy_offset"][0]) >= phy_offset:
                del self._starts[-1], self._files[-1], self._wrote[-1]
                continue
            good = _is_valid(units) & (units["phy_offset"] < phy_offset)
            good[0] = True
            self._wrote[-1] = len(good) if good.all() else int(np.argmin(good))
            self.max_physic = int(units["phy_offset"][self._wrote[-1] - 1])
            break
        after = sum(self._wrote)
        self.units_added = max(0, self.units_added - max(0, before - after))
        self._kept_of_given = min(self._kept_of_given, after)
        self._revise()

    def correct_min(self, lowest: int) -> None:
        """``correctMinOffset``."""
        self._revise_min()
        if self._starts and self._wrote[0]:
            units = self._units(0)[: self._wrote[0]]
            low = units["phy_offset"] < lowest
            count = len(low) if low.all() else int(np.argmin(low))
            if count:
                self.min_offset = int(units["base"][count - 1]) + int(units["count"][count - 1])

    def destroy(self) -> None:
        """``destroy``: all files go."""
        self._starts, self._files, self._wrote = [], [], []
        self.max_physic, self.min_offset, self.max_offset, self._kept_of_given = -1, -1, 0, 0

    @property
    def units_cut(self) -> int:
        """Units of the given files that are not kept."""
        return sum(int(np.count_nonzero(_is_valid(_units(file.data)))) for file in self._given) - self._kept_of_given

    def are_pointed_to(self, offsets: kept.Int64s) -> npt.NDArray[np.bool_]:
        """Return which of the physical ``offsets``, ascending, its units point to."""
        pointed_to = np.zeros(len(offsets), np.bool_)
        for index, wrote in enumerate(self._wrote):
            places = self._units(index)["phy_offset"][:wrote].astype(np.int64)
            pointed_to |= kept.are_among(
                offsets, queue_state.ascending(places[(places >= offsets[0]) & (places <= offsets[-1])])
            )
        return pointed_to


def _units(data: npt.NDArray[np.uint8]) -> Units:
    return data[: len(data) - len(data) % BATCH_UNIT_SIZE].view(BATCH_UNIT)


def _is_valid(units: Units) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = (
        (units["phy_offset"] >= 0) & (units["size"] > 0) & (units["base"] >= 0) & (units["count"] > 0)
    )
    return valid


def _valid(units: Units) -> int:
    good = _is_valid(units)
    return len(good) if good.all() else int(np.argmin(good))
