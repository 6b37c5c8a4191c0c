"""The files of one queue in ``consumequeue_ext`` while a broker starts: recovered, cut, and read by addresses."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start.store import QueueFolder, StoreFile
from rocketmq_reindex.storage_format.broker_start.unit_kernels import ext_chain, last_address
from rocketmq_reindex.storage_format.queue.extended import address_of
from rocketmq_reindex.storage_format.queue.units import EXT_LAYOUT, EXT_SIZE_MIN, UNIT_SIZE

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
    def recovered(folder: QueueFolder, cq_file_size: int, file_size: int) -> "ExtState":
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
