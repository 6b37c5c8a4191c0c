"""Rows of a whole log, kept outside of memory, and counts of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.layouts import INT64_MAX
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


# ------------------------------------------------------------------------------------------------------------------ queue lives
# Which records without a unit are of an earlier life of their queue: later ones of it took their offsets.

Bools = npt.NDArray[np.bool_]
_NO_BOUNDS: Final = np.empty((0, 4), np.int64)
_LOW, _HIGH, _FIRST, _END = range(4)
"""columns of a stretch: its queue offsets [low, high), and the bytes of the log [first, end) in which its records lie"""


@dataclass(frozen=True)
class HiddenRecords:
    """``count`` records of a queue that no consumer gets, with offsets from ``low`` to below ``high``, in [first, end)."""

    count: int
    low: int
    high: int
    first: int
    end: int


class QueueLives:
    """The records of one queue that have no unit, taken in the log's order.

    Where a topic is made again, or a broker counts a queue from a lower offset again, later records take the offsets of
    earlier ones. A queue has units of one life alone. So a record without a unit is of an earlier life if a later one of the
    queue has a unit, and the same queue offset or a lower one.

    Stretches of consecutive offsets are kept, not records. Where a later life begins inside a stretch, the bytes of what
    remains of it are not known more closely.
    """

    __slots__ = ("_counts", "_stretches", "earlier")

    def __init__(self) -> None:
        self.earlier = 0
        """records of earlier lives"""
        self._stretches = _NO_BOUNDS
        self._counts = np.empty(0, np.int64)

    @property
    def is_empty(self) -> bool:
        """Whether no record without a unit is kept."""
        return not len(self._counts)

    def take(self, hidden: Bools, queue_offset: Int64s, messages: Int64s, at: Int64s, size: Int64s) -> None:
        """Take the queue's next records, in the log's order; ``hidden`` are those without a unit."""
        lowest = np.minimum.accumulate(np.where(hidden, INT64_MAX, queue_offset)[::-1])[::-1]
        if len(lowest):
            self._begin_again(int(lowest[0]))
        earlier = hidden & (lowest <= queue_offset)
        self.earlier += int(np.count_nonzero(earlier))
        self._keep(np.flatnonzero(hidden & ~earlier), queue_offset, messages, at, size)

    def _begin_again(self, lowest: int) -> None:
        """A later record with this offset, the lowest of some, has a unit."""
        inside = self._stretches[:, _HIGH] > lowest
        if not inside.any():
            return
        low = self._stretches[:, _LOW]
        kept = np.where(inside, np.clip(lowest - low, 0, self._counts), self._counts)
        self.earlier += int((self._counts - kept).sum())
        # A batch stays as it is: its offset is its first message's.
        cut = inside & (self._counts == self._stretches[:, _HIGH] - low)
        self._stretches[cut, _HIGH] = np.maximum(low[cut], lowest)
        self._stretches, self._counts = self._stretches[kept > 0], kept[kept > 0]

    def _keep(self, rows: Int64s, queue_offset: Int64s, messages: Int64s, at: Int64s, size: Int64s) -> None:
        if not len(rows):
            return
        low, high = queue_offset[rows], queue_offset[rows] + messages[rows]
        # A stretch with a batch holds that alone: so it has a record for each offset, or one. So does one below 0.
        single = (messages[rows] == 1) & (low >= 0)
        follows = (low[1:] == high[:-1]) & single[1:] & single[:-1]
        begins = np.flatnonzero(np.concatenate(([True], ~follows)))
        ends = np.append(begins[1:], len(rows)) - 1
        stretches = np.stack((low[begins], high[ends], at[rows[begins]], at[rows[ends]] + size[rows[ends]]), 1)
        counts = ends - begins + 1
        if len(self._counts) and stretches[0, _LOW] == self._stretches[-1, _HIGH] and single[0] and self._is_single_at_end():
            self._stretches[-1, [_HIGH, _END]] = stretches[0, [_HIGH, _END]]
            self._counts[-1] += counts[0]
            stretches, counts = stretches[1:], counts[1:]
        self._stretches, self._counts = np.concatenate((self._stretches, stretches)), np.concatenate((self._counts, counts))

    def _is_single_at_end(self) -> bool:
        low, high = self._stretches[-1, :2]
        return bool(low >= 0 and self._counts[-1] == high - low)

    def hidden(self) -> HiddenRecords:
        """Return what no consumer gets, of all that was taken."""
        if self.is_empty:
            return HiddenRecords(0, INT64_MAX, -1, -1, -1)
        low = self._stretches[:, _LOW]
        return HiddenRecords(
            int(self._counts.sum()), int(low[low >= 0].min(initial=INT64_MAX)), int(self._stretches[:, _HIGH].max()),
            int(self._stretches[:, _FIRST].min()), int(self._stretches[:, _END].max()),
        )  # fmt: skip
