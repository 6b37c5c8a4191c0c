"""The other files of a queue while a broker starts: a batch ConsumeQueue, and ``consumequeue_ext``.

A batch ConsumeQueue (``BatchConsumeQueue`` of 5.x) is one of few. The files of one queue in ``consumequeue_ext`` are recovered,
cut, and read by addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start import kept, queue_state, store
from rocketmq_reindex.storage_format.broker_start.store import QueueFolder, StoreFile
from rocketmq_reindex.storage_format.broker_start.unit_kernels import ext_chain, last_address
from rocketmq_reindex.storage_format.queue.consume_queue import BATCH_UNIT
from rocketmq_reindex.storage_format.queue.extended import address_of
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, EXT_LAYOUT, EXT_SIZE_MIN, UNIT_SIZE

# ------------------------------------------------------------------------------------------------------------ batch queue state


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


# --------------------------------------------------------------------------------------------------------------- extended state


Int64s = npt.NDArray[np.int64]
_RECOVERED: Final = 3
"""files of a ConsumeQueue that its recovery reads"""


class ExtDamage(Exception):
    """Java throws for what stands in a file: the recovery, and with it the start, ends."""

    def __init__(self, file: StoreFile, at: int) -> None:
        super().__init__(f"{file.name} at {at}")
        self.file, self.at = file, at


class ExtUnits(NamedTuple):
    """What a broker reads at some addresses, a row for each."""

    there: npt.NDArray[np.bool_]
    """a unit: its ``tags_code`` and ``size`` follow"""
    fails: npt.NDArray[np.bool_]
    """Java throws, since what stands there reaches behind the last byte"""
    tags_code: Int64s
    size: Int64s


class ExtState:
    """The files, in the order of their names, each with how many of its bytes are written. Mirrors ``ConsumeQueueExt`` (4.9.8
    to 5.5.1)."""

    def __init__(self, files: Sequence[StoreFile], file_size: int) -> None:
        self._files, self._size = list(files), file_size
        self._wrote = [file_size] * len(self._files)
        self.is_short = False
        """whether the queue's last unit has an address behind the end of these files, where units of new messages go"""
        self.is_unreadable = False
        """whether Java throws for a unit when it is read"""

    @staticmethod
    def recovered(folder: QueueFolder, cq_file_size: int, file_size: int) -> ExtState:
        """Return the files of a queue as its recovery leaves them (``ConsumeQueue.recover``). Raises ExtDamage."""
        state = ExtState(folder.ext, file_size)
        if folder.files:
            if state._files:
                state._recover()
            address = state._last_address(folder.files, cq_file_size)
            if address < 0:
                state._cut(address)
                state.is_short = int(address_of(np.array([address]))[0]) >= state.end
        return state

    @property
    def end(self) -> int:
        """The logical byte where the next unit goes."""
        return self._files[-1].start + self._wrote[-1] if self._files else 0

    def _recover(self) -> None:
        for file in self._files:
            end, reach = map(int, ext_chain(file.data))
            file.let_go(0, file.size)
            if end < 0:
                raise ExtDamage(file, -1 - end)
            self.is_unreadable |= reach > (end if file is self._files[-1] else file.size)
        self._truncate(self._files[-1].start + end)

    def _last_address(self, files: Sequence[StoreFile], cq_file_size: int) -> int:
        """Return the address that the recovery of the ConsumeQueue meets last; 1 for none."""
        address = 1
        for number in range(max(0, len(files) - _RECOVERED), len(files)):
            data = files[number].data
            used, last = map(int, last_address(data, UNIT_SIZE))
            address = last if last < 0 else address
            if used != cq_file_size:
                break
        return address

    def _cut(self, address: int) -> None:
        """``truncateByMaxAddress``."""
        units = self.units(np.array([address]))
        offset = int(address_of(np.array([address]))[0])
        if units.fails[0]:
            raise ExtDamage(self._files[self._file_of(np.array([offset]))[0]], offset % self._size)
        if units.there[0]:
            self._truncate(offset + int(units.size[0]))

    def _truncate(self, offset: int) -> None:
        """``MappedFileQueue.truncateDirtyFiles``."""
        kept = [number for number, file in enumerate(self._files) if file.start <= offset]
        self._files, self._wrote = [self._files[number] for number in kept], [self._wrote[number] for number in kept]
        for number, file in enumerate(self._files):
            if file.start + self._size > offset:
                self._wrote[number] = offset % self._size

    def _file_of(self, offset: Int64s) -> npt.NDArray[np.intp]:
        """Return the number of the file with each byte, -1 for none (``findMappedFileByOffset``)."""
        starts = np.array([file.start for file in self._files], np.int64)
        number = np.searchsorted(starts, offset, "right") - 1
        inside = (number >= 0) & (offset < starts[np.maximum(number, 0)] + self._size) if len(starts) else number >= 0
        # A broker takes the first file where it finds none with byte 0.
        missing = 0 if self._files else -1
        found: npt.NDArray[np.intp] = np.where(inside, number, np.where(offset == 0, missing, -1))
        return found

    def units(self, addresses: Int64s) -> ExtUnits:
        """Return what a broker reads at addresses (``get``)."""
        offset, count = address_of(addresses), len(addresses)
        there, fails = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        tags_code, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
        numbers = self._file_of(offset)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            file, wrote = self._files[number], self._wrote[number]
            rows = np.flatnonzero(numbers == number)
            at = offset[rows] % self._size
            raw = np.zeros((len(rows), EXT_SIZE_MIN), np.uint8)
            places = at[:, None] + np.arange(EXT_SIZE_MIN)
            written = places < wrote
            raw[written] = file.data[places[written]]
            file.let_go(0, file.size)
            units, left = raw.view(EXT_LAYOUT.dtype).reshape(-1), wrote - at
            begun = (left >= 2) & (units["size"] > 0)
            whole = begun & (left >= EXT_SIZE_MIN) & (left >= EXT_SIZE_MIN + units["bit_map_size"].astype(np.int64))
            there[rows], fails[rows] = whole, begun & ~whole
            tags_code[rows], size[rows] = units["tags_code"], units["size"]
        return ExtUnits(there, fails, tags_code, size)
