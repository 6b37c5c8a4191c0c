"""The files of one queue, read as one row of slots: a file may be missing, short, or full of zeros."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE
from rocketmq_reindex.storage_format.record.layout import RECORD_MIN
from rocketmq_reindex.udfs import files

Int64s = npt.NDArray[np.int64]


class QueueFiles:
    """The files of one queue as one row of slots (``MappedFileQueue`` of a ``ConsumeQueue``, RocketMQ 5.3).

    ``queue`` is (topic in bytes, queue id), and ``folder`` the one of all topics, which a store calls ``kind``. ``table`` has
    (logical offset of the first byte, size in bytes) of each file; ``file_size`` is the size that each should have. ``unit`` is
    the dtype of a slot.
    """

    def __init__(self, folder: str, kind: str, queue: tuple[bytes, int], table: list[tuple[int, int]], file_size: int,
                 unit: np.dtype[np.void] = UNIT) -> None:  # fmt: skip
        name = queue[0].decode("utf-8", "surrogateescape")
        self._folder = files.join(folder, name, str(queue[1]))
        self.shown = f"{kind}/{escape(name)}/{queue[1]}"
        self._unit, self._size = unit, unit.itemsize
        self._file_size = file_size
        self._table = sorted(table)
        self._starts = [start for start, _ in self._table]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """For each file [position of its first slot, position behind its last one)."""
        return tuple((s // self._size, (s + min(size, self._file_size)) // self._size) for s, size in self._table)

    @property
    def end(self) -> int:
        """Position behind the last slot."""
        return self.spans[-1][1] if self._table else 0

    def __len__(self) -> int:
        return len(self._table)

    def path(self, position: int) -> str:
        """The path in the store of the file that has a slot, escaped."""
        return f"{self.shown}/{position * self._size // self._file_size * self._file_size:020d}"

    def _reader(self, start: int) -> files.Reader:
        return files.Reader(files.join(self._folder, f"{start:020d}"))

    def read(self, position: int, count: int) -> Int64s:
        """``count`` slots (int64, fields of the dtype by slots): zeros where there is no file."""
        raw = np.zeros(count * self._size, np.uint8)
        low, high = position * self._size, (position + count) * self._size
        number = max(0, bisect_right(self._starts, low) - 1)
        for start, size in self._table[number:]:
            if start >= high:
                break
            first, last = max(low, start), min(high, start + min(size, self._file_size))
            last -= (last - low) % self._size  # a part of a unit does not count
            if first < last:
                with self._reader(start) as reader:
                    reader.read_into(first - start, raw[first - low : last - low])
        units = raw.view(self._unit)
        names = self._unit.names or ()
        columns = np.empty((len(names), count), np.int64)
        for row, name in enumerate(names):
            columns[row] = units[name]
        return columns

    def data_from(self, position: int) -> int:
        """The position of the first slot from there on that may not be zeros."""
        at = position * self._size
        for start, size in self._table[max(0, bisect_right(self._starts, at) - 1) :]:
            end = start + min(size, self._file_size)
            if at >= end:
                continue
            with self._reader(start) as reader:
                found = start + reader.next_data(max(at, start) - start)
            if found < end:
                return max(position, found // self._size)
        return self.end

    def first_offset(self, log_start: int) -> int:
        """The phy_offset of the first unit whose record has not expired; -1 for none. The log begins at ``log_start``."""
        for low, high in self.spans:
            for position in range(low, high, 1 << 16):
                phy_offset, size = self.read(position, min(1 << 16, high - position))[:2]
                there = (size > 0) & (size != PRE_BLANK_SIZE) & (phy_offset >= log_start)
                if there.any():
                    return int(phy_offset[np.argmax(there)])
        return -1

    def empty_end(self) -> int | None:
        """The first slot of a file without any unit that a broker keeps as the queue's last file; None for none.

        ``ConsumeQueue.recover`` (RocketMQ 5.3) drops such files where a unit is missing before them, and takes one at 0 for a
        new queue.
        """
        number = len(self._table)
        while number and self._is_empty(number - 1):
            number -= 1
        if number == len(self._table):
            return None
        slot = self._starts[number] // self._size
        if not number:
            return slot or None
        size_before = self.read(self.spans[number - 1][1] - 1, 1)[1]
        return slot if size_before[0] > 0 else None

    def holds_expired(self, log_start: int) -> bool:
        """Whether any unit is of a record before ``log_start``, where the log begins."""
        position = 0
        while (position := self.data_from(position)) < self.end:
            count = min(1 << 16, self.end - position)
            phy_offset, size = self.read(position, count)[:2]
            whole = (phy_offset >= 0) & (size >= RECORD_MIN) & (size != PRE_BLANK_SIZE)
            if (whole & (phy_offset <= log_start - size)).any():
                return True
            position += count
        return False

    def _is_empty(self, number: int) -> bool:
        first, end = self.spans[number]
        while (first := self.data_from(first)) < end:
            count = min(1 << 16, end - first)
            if self.read(first, count).any():
                return False
            first += count
        return True
