"""Rows of a whole log, kept outside of memory, and counts of them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import TOTAL, Stretch, check_record, find_record, new_record
from rocketmq_reindex.storage_format.start.record_loop import LIGHT, LogRows, Reading, new_rows
from rocketmq_reindex.storage_format.start.store import LogReader, StoreFile

# ------------------------------------------------------------------------------------------------------------------------ spool
# Room outside of memory for what a start is worked out with.

Bytes = npt.NDArray[np.uint8]


class Spool(Protocol):
    """Room for what is too long for memory. What is put there stays until the end."""

    def put(self, data: bytes) -> int:
        """Keep bytes; return their place. Raises OSError where there is no room."""

    def get(self, place: int, size: int) -> Bytes:
        """Return ``size`` bytes, uint8, from a place on."""

    def room(self, size: int) -> Bytes:
        """Return a new array, uint8 (size,), of zeros, which can be written to."""


class MemorySpool:
    """A spool in memory: for a store that is small."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def put(self, data: bytes) -> int:
        place = len(self._kept)
        self._kept += data
        return place

    def get(self, place: int, size: int) -> Bytes:
        return np.frombuffer(self._kept[place : place + size], np.uint8)

    def room(self, size: int) -> Bytes:
        return np.zeros(size, np.uint8)


# -------------------------------------------------------------------------------------------------------------------- kept rows
# Rows and numbers of a whole log, kept in blocks in a spool: memory holds one block.

Int64s = npt.NDArray[np.int64]
_NUMBERS: Final = 1 << 17
"""of a block"""


def bytes_of(rows: LogRows) -> int:
    """Return bytes of the records of rows: a light queue has a row of its own for the same record."""
    return int(rows.size[(rows.flags & LIGHT) == 0].sum(dtype=np.int64))


class KeptRows:
    """Rows that are read again, chunk by chunk, in their order."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._chunks: list[tuple[int, int]] = []
        self.bytes = 0
        """of their records"""

    def add(self, rows: LogRows) -> None:
        """Keep some more rows."""
        count = len(rows.at)
        if count:
            place = self._spool.put(b"".join(column.tobytes() for column in rows))
            self._chunks.append((place, count))
            self.bytes += bytes_of(rows)

    def chunks(self) -> Iterator[LogRows]:
        """Yield what ``add`` was given."""
        kinds = [column.dtype for column in new_rows(0)]
        for place, count in self._chunks:
            columns = list[Any]()
            for kind in kinds:
                columns.append(self._spool.get(place, count * kind.itemsize).view(kind))
                place += count * kind.itemsize
            yield LogRows(*columns)


class _Block(NamedTuple):
    place: int
    numbers: int
    low: int
    high: int


class KeptNumbers:
    """Numbers that are asked for by their range."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._blocks: list[_Block] = []
        self._held = list[Int64s]()
        self._count = 0

    def add(self, numbers: Int64s) -> None:
        """Keep some more numbers, int64."""
        if len(numbers):
            self._held.append(np.array(numbers, np.int64))
            self._count += len(numbers)
        if self._count >= _NUMBERS:
            block = np.sort(np.concatenate(self._held))
            place = self._spool.put(block.tobytes())
            self._blocks.append(_Block(place, len(block), int(block[0]), int(block[-1])))
            self._held, self._count = [], 0

    def between(self, low: int, high: int) -> Iterator[Int64s]:
        """Yield the numbers from ``low`` to ``high``, with it, in ascending arrays."""
        for block in self._blocks:
            if block.low <= high and block.high >= low:
                yield self._spool.get(block.place, block.numbers * 8).view(np.int64)
        if self._held:
            self._held = [np.sort(np.concatenate(self._held))]
            yield self._held[0]


def are_among(numbers: Int64s, sorted_numbers: Int64s) -> npt.NDArray[np.bool_]:
    """Return which of ``numbers`` are in ``sorted_numbers``."""
    if not len(sorted_numbers):
        return np.zeros(len(numbers), np.bool_)
    at = np.minimum(np.searchsorted(sorted_numbers, numbers), len(sorted_numbers) - 1)
    is_among: npt.NDArray[np.bool_] = sorted_numbers[at] == numbers
    return is_among


# --------------------------------------------------------------------------------------------------------------------- counting
# Count what a broker does not look at itself: records below the recovery's start, and good ones behind a cut.

_CHUNK: Final = 1 << 20


def read_sound(stretches: Sequence[tuple[StoreFile, int, int]], reading: Reading, reader: LogReader) -> None:
    """Read into ``reader`` the sound records of stretches (segment, first byte, end), damage between them passed over."""
    record = new_record()
    for segment, first, end in stretches:
        at = first
        while at < end:
            code, at = reader.read(segment, at, end, reading)
            if code == r.FILLER:
                break
            # A damaged record whose length holds is passed as a whole: its body may have records in it.
            stretch = Stretch(segment.data, end, segment.start, segment.start + segment.size, segment.start + end)
            code = check_record(stretch, at, reading.crc, record)
            if code == r.GOOD or code >= r.FIRST_FRAMED:
                at += int(record.rec[TOTAL])
                continue
            code, at = find_record(stretch, at + 1, end, reading.crc, record)
            if code != r.GOOD:
                break


def last_byte(segments: Sequence[StoreFile], first: int, at: int) -> int:
    """Return the offset behind the last byte that is not zero, from byte ``at`` of segment ``first`` on; -1 where all are
    zero."""
    for number in range(len(segments) - 1, first - 1, -1):
        data, low = segments[number].data, at if number == first else 0
        high = len(data)
        while high > low:
            start = max(low, high - _CHUNK)
            used = np.flatnonzero(data[start:high])
            segments[number].let_go(start, high)
            if len(used):
                return segments[number].start + start + int(used[-1]) + 1
            high = start
    return -1


def by_queue(rows: LogRows, mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Int64s]]:
    """Yield the queues of the rows of ``mask``, each with the numbers of its rows in their order."""
    numbers = np.flatnonzero(mask)
    queues = rows.queue[numbers]
    order = np.argsort(queues, kind="stable")
    numbers, queues = numbers[order], queues[order]
    starts = np.flatnonzero(np.concatenate([[True], queues[1:] != queues[:-1]])) if len(queues) else np.zeros(0, np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(queues)], strict=False):
        yield int(queues[start]), numbers[start:end]
