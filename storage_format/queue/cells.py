"""Packed cells: columns of many queues in one binary value, and how a block of units is cut into them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit

# ------------------------------------------------------------------------------------------------------------------------ cells
# Nothing else of the messages passes through a Spark row.
#
# little-endian
# 0   int64   pieces p
# 8   int64   rows n
# 16  int32   name length   x p      (UTF-8 bytes)
#     int32   queue id      x p
#     int32   rows          x p
#     int64   base, width   x columns
#     uint    column        x n      (each in its width: what is above its base; the rows of a piece lie together)
#     bytes   names
#
# A column takes 1, 2, 4 or 8 bytes a row, as its values need: units come down from 32 bytes to half or less, and each byte is
# copied about ten times on its way through Spark.

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

UNIT_COLUMNS: Final = 4
"""queue offset, physical offset, size, tagsCode"""
RUN_COLUMNS: Final = 4
"""first queue offset, offsets, physical offset of the first record, end of the last one: as ``order.Run``"""
BATCH_COLUMNS: Final = 6
"""queue offset of the first message, physical offset, size, tagsCode, store time, messages"""
BATCH_RUN_COLUMNS: Final = 5
"""as RUN_COLUMNS (a message is an offset), and records"""
TOPIC_COLUMNS: Final = 2
"""queues (highest id + 1), 1 where a record names an id from ``topics.QUEUES_MAX`` on"""
CELL_BYTES: Final = 1 << 20
"""At most so many bytes of columns, each value taken as eight bytes, go into one cell."""
_NARROW: Final = (1, 2, 4)


@dataclass(frozen=True)
class CellRows:
    """Rows of several queues: piece i is ``counts[i]`` rows of the queue (``names[i]``, ``queue_ids[i]``).

    ``columns``: int64 (columns, rows), the rows of all pieces one after another.
    """

    names: list[bytes]
    queue_ids: Int32s
    counts: Int32s
    columns: Int64s

    def parts(self) -> Iterator[tuple[bytes, int, Int64s]]:
        """Yield each piece as (name, queue id, columns)."""
        at = 0
        for name, queue_id, count in zip(self.names, self.queue_ids.tolist(), self.counts.tolist(), strict=True):
            yield name, queue_id, self.columns[:, at : at + count]
            at += count


def _narrow(column: Int64s) -> tuple[int, int, bytes]:
    """Return (base, width, bytes) of one column."""
    if not len(column):
        return 0, 1, b""
    base, high = int(column.min()), int(column.max())
    for width in _NARROW:
        if high - base < 1 << 8 * width:
            return base, width, (column - base).astype(f"<u{width}").tobytes()
    return 0, 8, column.astype("<i8", copy=False).tobytes()


def pack(names: list[bytes], queue_ids: Int32s, counts: Int32s, columns: Int64s) -> bytes:
    """Return pieces as one cell. The arguments are the fields of ``CellRows``; ``unpack`` is the inverse."""
    head = np.array([len(names), columns.shape[1]], dtype="<i8")
    lengths = np.array([len(name) for name in names], dtype="<i4")
    narrow = [_narrow(column) for column in columns]
    return b"".join(
        [
            head.tobytes(),
            lengths.tobytes(),
            queue_ids.astype("<i4", copy=False).tobytes(),
            counts.astype("<i4", copy=False).tobytes(),
            np.array([(base, width) for base, width, _ in narrow], dtype="<i8").tobytes(),
            *(data for _, _, data in narrow),
            *names,
        ]
    )


def unpack(cell: bytes, columns: int) -> CellRows:
    """Return the rows of a cell whose pieces have so many columns."""
    count, rows = (int(v) for v in np.frombuffer(cell, "<i8", 2))
    table = np.frombuffer(cell, "<i4", 3 * count, 16).reshape(3, count)
    at = 16 + 12 * count
    widths = np.frombuffer(cell, "<i8", 2 * columns, at).reshape(columns, 2).tolist()
    at += 16 * columns
    body = np.empty((columns, rows), np.int64)
    for column, (base, width) in zip(body, widths, strict=True):
        column[:] = np.frombuffer(cell, "<i8" if width == 8 else f"<u{width}", rows, at)
        column += base
        at += width * rows
    names = []
    for length in table[0]:
        names.append(cell[at : at + int(length)])
        at += int(length)
    return CellRows(names, table[1], table[2], body)


# --------------------------------------------------------------------------------------------------------------------- grouping
# Group a block of units by queue, and cut it into cells for the tasks that will write the ConsumeQueue files.

_UNIT_BYTES: Final = 8 * UNIT_COLUMNS
_PIECE_BYTES: Final = 64


@jit
def sort_by_queue(queue: Int32s, offset: Int64s, phy_offset: Int64s, size: Int32s, tags_code: Int64s, starts: Int64s,
                  out: Int64s) -> None:  # fmt: skip
    """Counting sort of units by queue: those of one queue keep their order.

    ``starts[queue]`` is where a queue's units go in ``out``, int64 (UNIT_COLUMNS, n); it is counted up.
    """
    for i in range(len(queue)):
        at = starts[queue[i]]
        starts[queue[i]] = at + 1
        out[0, at] = offset[i]
        out[1, at] = phy_offset[i]
        out[2, at] = size[i]
        out[3, at] = tags_code[i]


def mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the keys with their 64 bits mixed (splitmix64's finalizer), the same in every process."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed


def bucket_of(name_crc: npt.NDArray[np.uint32], queue_id: Int32s, part: Int64s, buckets: int) -> Int64s:
    """Return the bucket, int64 (n,), that takes the part ``part`` (a file's number) of each queue.

    ``name_crc`` is the CRC-32 of the queue's topic. A queue's first part goes to any bucket, and its further parts to the ones
    behind it in turn, so that a hot queue is spread evenly.
    """
    key = (name_crc.astype(np.uint64) << np.uint64(32)) | queue_id.astype(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        turn = mix(key) % np.uint64(buckets) + part.astype(np.uint64) % np.uint64(buckets)
    chosen: Int64s = (turn % np.uint64(buckets)).astype(np.int64)
    return chosen


def rows_of(starts: Int64s, counts: Int64s) -> Int64s:
    """Return the row numbers of slices: ``counts[0]`` numbers from ``starts[0]`` on, then those of the next slice, and so
    on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    rows: Int64s = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
    return rows


class QueueBlock:
    """The units of one block, grouped by queue.

    ``columns``: int64 (UNIT_COLUMNS, n); queue k has the rows ``bounds[k]:bounds[k + 1]``. ``again``: int64 (n,), how many
    times more the record of each row named its light queue; empty where none did. (In the block those are rows of size 0 behind
    the unit.)
    """

    def __init__(self, queue: Int32s, offset: Int64s, phy_offset: Int64s, size: Int32s, tags_code: Int64s, queues: int) -> None:
        counts = np.bincount(queue, minlength=queues)
        self.bounds = np.zeros(queues + 1, dtype=np.int64)
        np.cumsum(counts, out=self.bounds[1:])
        self.columns = np.empty((UNIT_COLUMNS, len(queue)), dtype=np.int64)
        sort_by_queue(queue, offset, phy_offset, size, tags_code, self.bounds[:-1].copy(), self.columns)
        self.queue = np.repeat(np.arange(queues, dtype=np.int64), counts)
        self.again = np.zeros(0, np.int64)
        if len(size) and int(size.min()) == 0:
            self._set_apart()

    def _set_apart(self) -> None:
        """Take the rows of size 0 out, and count those that repeat the unit before them."""
        units = self.columns[2] > 0
        kept = np.flatnonzero(units)
        unit = np.cumsum(units) - 1
        repeats = ~units & (self.columns[0] == self.columns[0, kept[unit]])
        self.again = np.bincount(unit[repeats], minlength=len(kept)).astype(np.int64)
        self.columns, self.queue = np.ascontiguousarray(self.columns[:, kept]), self.queue[kept]
        self.bounds = np.searchsorted(self.queue, np.arange(len(self.bounds)))

    def runs(self) -> tuple[Int64s, Int64s]:
        """Return runs of consecutive queue offsets: (the queue of each, int64 (RUN_COLUMNS, n) as the fields of ``order.Run``).

        A run of two is given as two runs of one, so that each record of a short run has its own offset and size. A run that
        ends where it begins has no record: these are offsets that the record before used up by naming its light queue again.
        """
        n = self.columns.shape[1]
        if n == 0:
            return np.zeros(0, np.int64), np.zeros((RUN_COLUMNS, 0), np.int64)
        first = np.ones(n, dtype=bool)
        first[1:] = (self.queue[1:] != self.queue[:-1]) | (self.columns[0, 1:] != self.columns[0, :-1] + 1)
        if len(self.again):
            first[1:] |= self.again[:-1] > 0
        starts = np.flatnonzero(first)
        pairs = starts[np.diff(np.append(starts, n)) == 2]
        if len(pairs):
            first[pairs + 1] = True
            starts = np.flatnonzero(first)
        ends = np.append(starts[1:], n)
        last_end = self.columns[1, ends - 1] + self.columns[2, ends - 1]
        columns = np.stack([self.columns[0, starts], ends - starts, self.columns[1, starts], last_end])
        if not len(self.again):
            return self.queue[starts], columns
        at = np.flatnonzero(self.again[ends - 1])
        last = ends[at] - 1
        used = np.stack([self.columns[0, last] + 1, self.again[last], self.columns[1, last], self.columns[1, last]])
        return np.insert(self.queue[starts], at + 1, self.queue[last]), np.insert(columns, at + 1, used, axis=1)

    def pieces(self, units_per_file: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return stretches of one queue that lie in one file and fit into a cell: (queue, file number, first row, rows), int64
        (n,) each."""
        n = self.columns.shape[1]
        if n == 0:
            empty = np.zeros(0, np.int64)
            return empty, empty, empty, empty
        file_number = self.columns[0] // units_per_file
        rows_max = CELL_BYTES // _UNIT_BYTES
        first = np.ones(n, dtype=bool)
        first[1:] = (self.queue[1:] != self.queue[:-1]) | (file_number[1:] != file_number[:-1])
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, n))
        parts = -(-counts // rows_max)
        if len(parts) and parts.max() > 1:
            starts = np.repeat(starts, parts) + rows_max * rows_of(np.zeros_like(parts), parts)
            counts = np.diff(np.append(starts, n))
        return self.queue[starts], file_number[starts], starts, counts


def cut_cells(
    bucket: Int64s,
    names: list[bytes],
    name_number: Int64s,
    queue_ids: Int32s,
    starts: Int64s,
    counts: Int64s,
    columns: Int64s,
) -> list[tuple[int, bytes]]:
    """Return pieces as (bucket, cell), sorted by bucket, each cell of about CELL_BYTES at most.

    Piece i is ``counts[i]`` rows of ``columns`` from ``starts[i]`` on; it is of the queue (``names[name_number[i]]``,
    ``queue_ids[i]``) and goes to ``bucket[i]``.
    """
    if not len(bucket):
        return []
    order = np.argsort(bucket, kind="stable")
    bucket, name_number, queue_ids = bucket[order], name_number[order], queue_ids[order]
    starts, counts = starts[order], counts[order]
    weight = np.cumsum(counts * 8 * columns.shape[0] + _PIECE_BYTES)
    cuts = [0]
    edges = np.flatnonzero(bucket[1:] != bucket[:-1]) + 1
    for edge in [*edges.tolist(), len(bucket)]:
        while cuts[-1] < edge:
            before = int(weight[cuts[-1] - 1]) if cuts[-1] else 0
            fits = int(np.searchsorted(weight, before + CELL_BYTES, side="right"))
            cuts.append(min(edge, max(fits, cuts[-1] + 1)))
    result = []
    for low, high in pairwise(cuts):
        rows = rows_of(starts[low:high], counts[low:high])
        cell = pack(
            [names[k] for k in name_number[low:high]],
            queue_ids[low:high],
            counts[low:high].astype(np.int32),
            columns[:, rows],
        )
        result.append((int(bucket[low]), cell))
    return result
