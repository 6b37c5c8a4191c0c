"""The heads of single records, and the files of one queue as a row of slots."""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters, UnitsAt, is_address
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.scan.extended import COLUMNS, IS_LIGHT, STORE_TIME, ExtFiles

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# ----------------------------------------------------------------------------------------------------------------- record heads
# Read the heads of single records: does a record start at an offset, and which queue is it of?


@dataclass(frozen=True)
class RecordHead:
    """What the head of a record says. Its lengths add up, and it names its own phy_offset; no CRC is checked."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int


class RecordHeads:
    """Reads the head of one record at a time from the ``segments`` of a log, which are in order.

    The layout is that of ``MessageDecoder`` (RocketMQ 5.3).
    """

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self._segments = segments
        self._starts = [segment.start for segment in segments]

    def at(self, phy_offset: int) -> RecordHead | None:
        """Return the head of the record that starts at ``phy_offset``; None when none does."""
        return self.of_all([phy_offset])[0]

    def of_all(self, phy_offsets: list[int]) -> list[RecordHead | None]:
        """Return what ``at`` does for each of some offsets. A segment is opened once for neighbours that lie in it."""
        heads: list[RecordHead | None] = []
        for segment, offsets in itertools.groupby(phy_offsets, self._segment_of):
            if segment is None:
                heads += [None for _ in offsets]
                continue
            with files.Reader(segment.path) as reader:
                heads += [self._read(reader, segment, phy_offset) for phy_offset in offsets]
        return heads

    def _segment_of(self, phy_offset: int) -> Segment | None:
        """Return the segment that has room for a record at ``phy_offset``."""
        number = bisect_right(self._starts, phy_offset) - 1
        has_room = number >= 0 and phy_offset + r.RECORD_MIN <= self._segments[number].data_end
        return self._segments[number] if has_room else None

    @staticmethod
    def _read(reader: files.Reader, segment: Segment, phy_offset: int) -> RecordHead | None:
        head = reader.read(phy_offset - segment.start, r.HEAD_LAYOUT.size)
        total, magic, _, queue_id, _, queue_offset, named, flags, _ = r.HEAD_LAYOUT.unpack(head)
        if magic not in (r.MAGIC_V1, r.MAGIC_V2) or named != phy_offset or total < r.RECORD_MIN:
            return None
        end = phy_offset + total
        extra = r.IPV6_EXTRA * (bool(flags & r.FLAG_BORN_HOST_V6) + bool(flags & r.FLAG_STORE_HOST_V6))
        body_at = phy_offset + r.HEADER_SIZE + extra
        if end > segment.data_end or body_at + 3 > end:
            return None
        (body,) = struct.unpack(">i", reader.read(body_at - 4 - segment.start, 4))
        topic_at, wide = body_at + max(0, body), magic == r.MAGIC_V2
        if topic_at + 4 > end:
            return None
        length_bytes = reader.read(topic_at - segment.start, 2 if wide else 1)
        length = int.from_bytes(length_bytes, "big", signed=True)
        name_at = topic_at + len(length_bytes)
        if length < 0 or name_at + length + 2 > end:
            return None
        raw = reader.read(name_at - segment.start, length + 2)
        if name_at + length + 2 + max(0, int.from_bytes(raw[length:], "big", signed=True)) != end:
            return None
        return RecordHead(java_text(raw[:length]), queue_id, queue_offset, total)


# ------------------------------------------------------------------------------------------------------------------ queue files
# The files of one queue, read as one row of slots: a file may be missing, short, or full of zeros.


class _Led(NamedTuple):
    """Units of consumequeue_ext to which the slots that were read last lead, a row for each."""

    position: Int64s
    units: UnitsAt
    bits: npt.NDArray[np.uint8]


class QueueSlots(Protocol):
    """One queue of a store as a row of slots: in files (``QueueFiles``) or in RocksDB (``DatabaseQueue``)."""

    shown: str
    """what the store calls the queue, escaped"""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """For each file, or for all of a queue in RocksDB, [position of its first slot, position behind its last one)."""

    def __len__(self) -> int:
        """Return how many files there are, or whether RocksDB has the queue."""

    def lacking(self, listed: bool) -> str:
        """Return what a queue lacks of which there is nothing; ``listed``: the store has a folder for it."""

    def path(self, position: int) -> str:
        """Return where a slot lies in the store, escaped."""

    def read(self, position: int, count: int) -> Int64s:
        """Return ``count`` slots (int64, fields of the unit by slots): zeros where there is nothing."""

    def check_extended(self, rows: Int64s, filters: ConsumerFilters, topic: str) -> tuple[Mask, Mask]:
        """Return for expected units (``QueueView.extended``) which have another store time, and which lack bits."""

    def check_end(self, tally: Tally, log_start: int) -> None:
        """Add what is wrong with what the store says of the queue's end, in a log that begins at ``log_start``."""

    def data_from(self, position: int) -> int:
        """Return the position of the first slot from there on that may not be zeros."""

    def empty_end(self) -> int | None:
        """Return the first slot of a file without any unit that a broker keeps as the queue's last file; None for none."""

    def holds_expired(self, log_start: int) -> bool:
        """Return whether any unit is of a record before ``log_start``, where the log begins."""


class QueueFiles:
    """The files of one queue as one row of slots (``MappedFileQueue`` of a ``ConsumeQueue``, RocketMQ 5.3).

    ``queue`` is (topic in bytes, queue id), and ``folder`` the one of all topics, which a store calls ``kind``. ``table`` has
    (logical offset of the first byte, size in bytes) of each file; ``file_size`` is the size that each should have. ``unit`` is
    the dtype of a slot. ``ext`` are the queue's files in consumequeue_ext, where bit maps of ``bits`` bytes are compared.
    """

    def __init__(self, folder: str, kind: str, queue: tuple[bytes, int], table: list[tuple[int, int]], file_size: int,
                 unit: np.dtype[np.void] = UNIT, ext: ExtFiles | None = None,
                 bits: int = 0) -> None:  # fmt: skip
        name = queue[0].decode("utf-8", "surrogateescape")
        self._folder = files.join(folder, name, str(queue[1]))
        self.shown = f"{kind}/{escape(name)}/{queue[1]}"
        self._unit, self._size = unit, unit.itemsize
        self._ext, self._bits = ext, bits
        self._led: _Led | None = None
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

    def lacking(self, listed: bool) -> str:
        """Return what a queue lacks that has no file; ``listed``: the store has a folder for it."""
        return "file" if listed else "folder"

    def path(self, position: int) -> str:
        """Return the path in the store of the file that has a slot, escaped."""
        return f"{self.shown}/{position * self._size // self._file_size * self._file_size:020d}"

    def _reader(self, start: int) -> files.Reader:
        return files.Reader(files.join(self._folder, f"{start:020d}"))

    def read(self, position: int, count: int) -> Int64s:
        """Return ``count`` slots (int64, fields of the dtype by slots): zeros where there is no file.

        A tagsCode that is an address is that of the unit to which it leads in ``ext``.
        """
        columns = self._read(position, count)
        if self._ext is not None:
            rows = np.flatnonzero(is_address(columns[2]))
            units, bits = self._ext.at(columns[2, rows], self._bits)
            columns[2, rows[units.there]] = units.tags_code[units.there]
            self._led = _Led(rows + position, units, bits)
        return columns

    def check_extended(self, rows: Int64s, filters: ConsumerFilters, topic: str) -> tuple[Mask, Mask]:
        """Return for expected units, at rising positions among those read last, which lead to another store time, and which
        lack bits.

        A unit with a tagsCode of its own says neither. ``rows``: int64 (1 + COLUMNS + words, n), as the scan has them.
        """
        wrong = np.zeros((2, rows.shape[1]), np.bool_)
        led = self._led
        if led is None:
            return wrong[0], wrong[1]
        _, at, there = np.intersect1d(rows[0], led.position, assume_unique=True, return_indices=True)
        kept = rows[IS_LIGHT, at] == 0
        at, there = at[kept], there[kept]
        store_time = rows[STORE_TIME, at]
        wrong[0, at] = led.units.store_time[there] != store_time
        needed = filters.bit_maps(topic, filters.trusted(topic, rows[COLUMNS:, at], store_time))
        # Without a bit map, or with one of another filter, a broker filters by the log alone.
        has_bits = led.units.bit_map_size[there] == filters.bit_map_size(topic)
        wrong[1, at] = has_bits & (needed & ~led.bits[there]).any(axis=1)
        return wrong[0], wrong[1]

    def check_end(self, _tally: Tally, _log_start: int) -> None:
        """Do nothing: files say no more of a queue's end than where their units end."""

    def _read(self, position: int, count: int) -> Int64s:
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
        """Return the position of the first slot from there on that may not be zeros."""
        at = position * self._size
        for start, size in self._table[max(0, bisect_right(self._starts, at) - 1) :]:
            end = start + min(size, self._file_size)
            if at >= end:
                continue
            with self._reader(start) as reader:
                data_at = start + reader.next_data(max(at, start) - start)
            if data_at < end:
                return max(position, data_at // self._size)
        return self.end

    def first_offset(self, log_start: int) -> int:
        """Return the phy_offset of the first unit whose record has not expired; -1 for none. The log begins at
        ``log_start``."""
        for low, high in self.spans:
            for position in range(low, high, 1 << 16):
                phy_offset, size = self.read(position, min(1 << 16, high - position))[:2]
                has_record = (size > 0) & (size != PRE_BLANK_SIZE) & (phy_offset >= log_start)
                if has_record.any():
                    return int(phy_offset[np.argmax(has_record)])
        return -1

    def empty_end(self) -> int | None:
        """Return the first slot of a file without any unit that a broker keeps as the queue's last file; None for none.

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
        """Return whether any unit is of a record before ``log_start``, where the log begins."""
        position = 0
        while (position := self.data_from(position)) < self.end:
            count = min(1 << 16, self.end - position)
            phy_offset, size = self.read(position, count)[:2]
            whole = (phy_offset >= 0) & (size >= r.RECORD_MIN) & (size != PRE_BLANK_SIZE)
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
