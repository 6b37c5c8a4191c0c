"""Where the units of queues out of order go, as packed arrays in staged files: these rows never pass through the driver.

Little-endian. Each task that decides on order writes one file; the driver knows only where the rows of each queue begin:
    int64   kept     x 5 x rows    (``Placement.kept``)
    int64   fills    x 3 x rows    (``Placement.fills``)
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.order import Placement
from rocketmq_reindex.storage_format.queue.placement import Rows
from rocketmq_reindex.udfs import files

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

    def read(self) -> Rows:
        """The rows of kept, then those of fills (int64, flat)."""
        with files.Reader(self.path) as reader:
            return np.frombuffer(reader.read(self.at, self.size), "<i8")


class PlacementWriter:
    """Writes the placements of one task, one behind the other, into the file ``path`` that ``writer`` makes."""

    def __init__(self, writer: files.Writer, path: str) -> None:
        self._writer, self._path, self._at = writer, path, 0

    def put(self, placement: Placement) -> PlacementSpan:
        """Append a placement; returns where it is."""
        span = PlacementSpan(self._path, self._at, len(placement.kept), len(placement.fills))
        for rows in (placement.kept, placement.fills):
            data = np.array(rows, dtype="<i8").reshape(-1)
            self._writer.append(data)
            self._at += data.nbytes
        return span


def _key(name: bytes, queue_id: int) -> int:
    """A number that few queues share."""
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

    def put(self, topic: str, queue_id: int, where: PlacementSpan | None) -> None:
        """Add a queue, whose placement is at ``where``."""
        assert where is not None, "a queue that was refused has no placement"
        line = json.dumps([topic, queue_id, where]).encode()
        self._rows.extend((_key(topic.encode(), queue_id), self._at, len(line)))
        self._held.append(line)
        self._at += len(line)
        if len(self._held) >= _HELD_LINES:
            self._flush()

    def _flush(self) -> None:
        self._writer.append(b"".join(self._held))
        self._held = []

    def finish(self) -> str:
        """Finish both files; returns ``path``, or "" when no queue was added, and then there is no file."""
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

    def __init__(self, plan: str, table: Callable[[Queue, Rows, Rows], Table]) -> None:
        self._plan, self._table = plan, table
        data = files.read_bytes(files.beside(plan, ".keys")) if plan else b""
        self._keys, self._at, self._length = np.frombuffer(data, "<u8").reshape(3, -1)
        self._spans: OrderedDict[Queue, PlacementSpan | None] = OrderedDict()
        self._held: OrderedDict[Queue, tuple[Table, int]] = OrderedDict()
        self._bytes = 0

    def having(self, queues: Sequence[Queue]) -> npt.NDArray[np.bool_]:
        """For each of the queues whether it has a table (bool)."""
        keys = np.fromiter((_key(*queue) for queue in queues), np.uint64, len(queues))
        found = np.searchsorted(self._keys, keys, "left") < np.searchsorted(self._keys, keys, "right")
        for k in np.flatnonzero(found).tolist():
            found[k] = self._span(queues[k]) is not None
        return found

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
                name, queue_id, where = json.loads(reader.read(int(self._at[k]), int(self._length[k])))
                if (name.encode(), queue_id) == queue:
                    return PlacementSpan(*where)
        return None

    def get(self, queue: Queue) -> Table | None:
        """The table of a queue; None when it has none, because it is in order."""
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
