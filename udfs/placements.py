"""Where the units of queues out of order go, as packed arrays in staged files, and their move to these positions."""

import json
import zlib
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.queue import cells, order, placement as queue_placement
from rocketmq_reindex.storage_format.topics import WAITING_TOPICS
from rocketmq_reindex.udfs import handover

# ------------------------------------------------------------------------------------------------------------------- placements
# These rows never pass through the driver. Little-endian. Each task that decides on order writes one file; the driver
# knows only where the rows of each queue begin:
#     int64   kept     x 5 x rows    (``Placement.kept``)
#     int64   fills    x 3 x rows    (``Placement.fills``)

Queue = tuple[bytes, int]
"""(topic in UTF-8, queue id)"""
Table = TypeVar("Table")
KEPT, FILLS = 5, 3
_HELD_BYTES = 64 << 20
"""Bytes of tables that a task holds at once; a single table may be larger."""
_HELD_SPANS: Final = 10_000
_HELD_LINES: Final = 1_000


class PlacementSpan(NamedTuple):
    """Where the rows of one queue's placement are: a file, a byte in it, and how many rows there are of each array."""

    path: str
    at: int
    kept: int
    fills: int

    @property
    def size(self) -> int:
        """Bytes of the rows."""
        return 8 * (KEPT * self.kept + FILLS * self.fills)

    def read(self) -> queue_placement.Rows:
        """Return the rows of kept, then those of fills (int64, flat)."""
        with files.Reader(self.path) as reader:
            return np.frombuffer(reader.read(self.at, self.size), "<i8")


class PlacementWriter:
    """Writes the placements of one task, one behind the other, into the file ``path`` that ``writer`` makes."""

    def __init__(self, writer: files.Writer, path: str) -> None:
        self._writer, self._path, self._at = writer, path, 0

    def put(self, placement: order.Placement) -> PlacementSpan:
        """Append a placement. Return where it is."""
        span = PlacementSpan(self._path, self._at, len(placement.kept), len(placement.fills))
        for rows in (placement.kept, placement.fills):
            data = np.array(rows, dtype="<i8").reshape(-1)
            self._writer.append(data)
            self._at += data.nbytes
        return span


def _key(name: bytes, queue_id: int) -> int:
    """Return a number that few queues share."""
    return zlib.crc32(name) << 32 | queue_id & 0xFFFFFFFF


class PlanWriter:
    """Writes where the rows of each queue out of order are: one line for each queue in ``path``.

    The file ``path``.keys leads from a queue to its line. Little-endian, in the order of keys:
        uint64  key         x queues   (``_key``)
        uint64  byte        x queues
        uint64  length      x queues
    """

    def __init__(self, temporary: str, path: str) -> None:
        self._temporary, self._path = temporary, path
        self._writer = files.Writer(temporary, path)
        self._rows, self._held, self._at = array("Q"), list[bytes](), 0

    def put(self, topic: str, queue_id: int, span: PlacementSpan | None) -> None:
        """Add a queue, whose placement is at ``span``."""
        assert span is not None, "a queue that was refused has no placement"
        line = json.dumps([topic, queue_id, span]).encode()
        self._rows.extend((_key(topic.encode(), queue_id), self._at, len(line)))
        self._held.append(line)
        self._at += len(line)
        if len(self._held) >= _HELD_LINES:
            self._flush()

    def _flush(self) -> None:
        self._writer.append(b"".join(self._held))
        self._held = []

    def finish(self) -> str:
        """Finish both files. Return ``path``, or "" when no queue was added, and then there is no file."""
        if not len(self._rows):
            self._writer.abandon()
            return ""
        self._flush()
        self._writer.finish()
        rows = np.array(self._rows, "<u8").reshape(-1, 3)
        keys = np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")].T)
        files.write_bytes(self._temporary, files.beside(self._path, ".keys"), [keys])
        return self._path

    def abandon(self) -> None:
        """Leave no file."""
        self._writer.abandon()


class Placements(Generic[Table]):
    """The tables of the queues out of order; a table is read when somebody asks for it.

    ``plan`` is the path that ``PlanWriter.finish`` returned, maybe "". ``table`` makes a table from a queue and its rows
    of ``kept`` and ``fills`` (int64, flat).
    """

    def __init__(self, plan: str, table: Callable[[Queue, queue_placement.Rows, queue_placement.Rows], Table]) -> None:
        self._plan, self._table = plan, table
        data = files.read_bytes(files.beside(plan, ".keys")) if plan else b""
        self._keys, self._at, self._length = np.frombuffer(data, "<u8").reshape(3, -1)
        self._spans: OrderedDict[Queue, PlacementSpan | None] = OrderedDict()
        self._held: OrderedDict[Queue, tuple[Table, int]] = OrderedDict()
        self._bytes = 0

    def having(self, queues: Sequence[Queue]) -> npt.NDArray[np.bool_]:
        """Return for each of the queues whether it has a table (bool)."""
        keys = np.fromiter((_key(*queue) for queue in queues), np.uint64, len(queues))
        has_table = np.searchsorted(self._keys, keys, "left") < np.searchsorted(self._keys, keys, "right")
        for k in np.flatnonzero(has_table).tolist():
            has_table[k] = self._span(queues[k]) is not None
        return has_table

    def _span(self, queue: Queue) -> PlacementSpan | None:
        if queue not in self._spans:
            if len(self._spans) >= _HELD_SPANS:
                self._spans.popitem(last=False)
            self._spans[queue] = self._look_up(queue)
        return self._spans[queue]

    def _look_up(self, queue: Queue) -> PlacementSpan | None:
        key = np.uint64(_key(*queue))
        low, high = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        if low == high:
            return None
        with files.Reader(self._plan) as reader:
            for k in range(low, high):
                name, queue_id, span = json.loads(reader.read(int(self._at[k]), int(self._length[k])))
                if (name.encode(), queue_id) == queue:
                    return PlacementSpan(*span)
        return None

    def get(self, queue: Queue) -> Table | None:
        """Return the table of a queue; None when it has none, because it is in order."""
        span = self._span(queue)
        if span is None:
            return None
        if queue not in self._held:
            size, rows = span.size, span.read()
            while self._held and self._bytes + size > _HELD_BYTES:
                self._bytes -= self._held.popitem(last=False)[1][1]
            self._held[queue] = (self._table(queue, rows[: KEPT * span.kept], rows[KEPT * span.kept :]), size)
            self._bytes += size
        self._held.move_to_end(queue)
        return self._held[queue][0]


# ---------------------------------------------------------------------------------------------------------------------- reroute
# Move the units of queues out of order to the positions that the queue order policy gives them.

_WAITING = frozenset(topic.encode() for topic in WAITING_TOPICS)


def placement_table(queue: Queue, kept: queue_placement.Rows, fills: queue_placement.Rows) -> queue_placement.PlacementTable:
    """Return the table of a plain queue, for ``Placements``."""
    return queue_placement.PlacementTable(kept, fills, queue[0] in _WAITING)


@dataclass(frozen=True)
class Reroute:
    """Maps rows of UNITS to rows of UNITS: units of queues out of order get new positions, all other cells stay as they are.

    ``placements`` is the plan of those queues (``PlanWriter``). ``units_per_file`` is the size of a ConsumeQueue file in units,
    ``keys[b]`` the key of bucket b.
    """

    placements: str
    units_per_file: int
    keys: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = Placements(self.placements, placement_table)
        return handover.batches(row for batch in batches for row in self._rows(batch, table))

    def _rows(self, batch: pa.RecordBatch, table: Placements[queue_placement.PlacementTable]) -> Iterator[handover.Row]:
        for row in handover.rows_of(batch):
            pieces = cells.unpack(row.data, cells.UNIT_COLUMNS)
            queues = list(zip(pieces.names, pieces.queue_ids.tolist(), strict=True))
            odd = table.having(queues)
            if not odd.any():
                yield row
                continue
            starts = np.cumsum(pieces.counts, dtype=np.int64) - pieces.counts
            keep = np.flatnonzero(~odd)
            if len(keep):
                rows = cells.rows_of(starts[keep], pieces.counts[keep].astype(np.int64))
                plain = cells.pack(
                    [pieces.names[k] for k in keep],
                    pieces.queue_ids[keep],
                    pieces.counts[keep],
                    pieces.columns[:, rows],
                )
                yield row._replace(data=plain)
            # Random offsets make a piece of nearly every unit: those of a queue are placed together. They ascend by phy_offset.
            by_queue: dict[tuple[bytes, int], list[int]] = defaultdict(list)
            for k in np.flatnonzero(odd).tolist():
                by_queue[queues[k]].append(k)
            for queue, numbers in by_queue.items():
                rows, placement = cells.rows_of(starts[numbers], pieces.counts[numbers].astype(np.int64)), table.get(queue)
                assert placement is not None
                yield from self._route(row.range_number, queue, placement.apply(pieces.columns[:, rows]))

    def _route(self, number: int, queue: tuple[bytes, int], units: npt.NDArray[np.int64]) -> Iterator[handover.Row]:
        if not units.shape[1]:
            return
        n = units.shape[1]
        block = cells.QueueBlock(np.zeros(n, np.int32), units[0], units[1], units[2].astype(np.int32), units[3], 1)
        _, file_number, starts, counts = block.pieces(self.units_per_file)
        crc = np.full(len(starts), zlib.crc32(queue[0]), np.uint32)
        ids = np.full(len(starts), queue[1], np.int32)
        bucket = cells.bucket_of(crc, ids, file_number, len(self.keys))
        zeros = np.zeros(len(starts), np.int64)
        for target, cell in cells.cut_cells(bucket, [queue[0]], zeros, ids, starts, counts, block.columns):
            yield handover.Row(handover.UNITS, target, self.keys[target], number, cell)
