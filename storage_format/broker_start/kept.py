"""Rows of a whole log, kept outside of memory, and counts of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.broker_start.record_loop import HAS_UNIT, LIGHT, LogRows, Reading, new_rows
from rocketmq_reindex.storage_format.broker_start.store import LogReader, StoreFile
from rocketmq_reindex.storage_format.errors import ProgressListener
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import TOTAL, Stretch, check_record, find_record, new_record

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
        self.spool = spool
        self._chunks: list[tuple[int, int]] = []
        self.bytes = 0
        """of their records"""

    def add(self, rows: LogRows) -> None:
        """Keep some more rows."""
        count = len(rows.at)
        if count:
            self._chunks.append((_put(self.spool, rows), count))
            self.bytes += bytes_of(rows)

    def chunks(self) -> Iterator[LogRows]:
        """Yield what ``add`` was given."""
        kinds = [column.dtype for column in new_rows(0)]
        for place, count in self._chunks:
            yield LogRows(*_get(self.spool, place, count, kinds))


def _put(spool: Spool, columns: Iterable[npt.NDArray[Any]]) -> int:
    return spool.put(b"".join(column.tobytes() for column in columns))


def _get(spool: Spool, place: int, count: int, kinds: Iterable[np.dtype[Any]]) -> list[npt.NDArray[Any]]:
    columns = list[npt.NDArray[Any]]()
    for kind in kinds:
        columns.append(spool.get(place, count * kind.itemsize).view(kind))
        place += count * kind.itemsize
    return columns


class QueueRows(NamedTuple):
    """Of records that get a unit: columns of ``LogRows``. ``at`` is where each lies, or says that it does."""

    at: Int64s
    size: npt.NDArray[np.int32]
    offset: Int64s
    queue: npt.NDArray[np.int32]
    messages: npt.NDArray[np.int16]
    flags: npt.NDArray[np.uint8]

    @staticmethod
    def of(rows: LogRows, at: Int64s) -> "QueueRows":
        """Return copies of those rows that get a unit."""
        gets_unit, columns = (rows.flags & HAS_UNIT) > 0, {**rows._asdict(), "at": at}
        return QueueRows(*(columns[name][gets_unit] for name in QueueRows._fields))


_MANY: Final = 4096
"""queues in one chunk of the log from which on its rows are taken by queue"""
_PARTS: Final = 64
_PART_ROWS: Final = 1 << 17


class RowsByQueue:
    """Rows that are read again in parts, each with the rows of some queues alone, in their order.

    Of 100,000 queues a chunk of the log has few records each, and what is done for each queue of each chunk takes long.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._pieces: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self.bytes = 0
        """of their records"""

    def takes(self, rows: QueueRows) -> bool:
        """Keep some more rows, and return true, if they are of many queues, or rows were kept before."""
        if not self.bytes and np.count_nonzero(np.bincount(rows.queue)) <= _MANY:
            return False
        parts = rows.queue % _PARTS
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(_PARTS + 1))
        for pieces, low, high in zip(self._pieces, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if low < high:
                pieces.append((_put(self._spool, (column[order[low:high]] for column in rows)), high - low))
        self.bytes += int(rows.size.sum(dtype=np.int64))
        return True

    def hand_over(self, taker: Callable[[QueueRows], None], step: str, progress: ProgressListener) -> None:
        """Give all rows to ``taker``, those of a queue in the order in which they came, and forget them."""
        if not self.bytes:
            return
        progress.begin(step, self.bytes)
        for rows in self._parts():
            taker(rows)
            progress.moved(int(rows.size.sum(dtype=np.int64)))

    def _parts(self) -> Iterator[QueueRows]:
        kept, self._pieces, self.bytes = self._pieces, [[] for _ in range(_PARTS)], 0
        for pieces in kept:
            held, count = list[list[npt.NDArray[Any]]](), 0
            for number, (place, rows) in enumerate(pieces):
                held.append(_get(self._spool, place, rows, _KINDS))
                count += rows
                if count >= _PART_ROWS or number + 1 == len(pieces):
                    yield QueueRows(*map(np.concatenate, zip(*held, strict=True)))
                    held, count = [], 0


_KINDS: Final = [np.dtype(kind) for kind in (np.int64, np.int32, np.int64, np.int32, np.int16, np.uint8)]
"""of the columns of ``QueueRows``"""


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
            segment_end = segment.start + segment.size
            stretch = Stretch(segment.data, end, segment.start, segment_end, segment.start + end, segment.lead)
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


def by_queue(rows: QueueRows) -> Iterator[tuple[int, Int64s]]:
    """Yield the queues of rows, each with the numbers of its rows in their order."""
    numbers = np.argsort(rows.queue, kind="stable")
    queues = rows.queue[numbers]
    starts = np.flatnonzero(np.concatenate([[True], queues[1:] != queues[:-1]])) if len(queues) else np.zeros(0, np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(queues)], strict=False):
        yield int(queues[start]), numbers[start:end]
