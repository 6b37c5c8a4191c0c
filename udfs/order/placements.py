"""Where the units of disordered queues go, as packed arrays in staged files: the rows never pass the driver.

little-endian; one file a judging task, the driver knows only where in it each queue's rows begin
    int64   kept     x 5 x rows    (``Placement.kept``)
    int64   fills    x 3 x rows    (``Placement.fills``)
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.order import Placement
from rocketmq_reindex.storage_format.queue.placement import Rows
from rocketmq_reindex.udfs import files

Queue = tuple[bytes, int]
Table = TypeVar("Table")
KEPT, FILLS = 5, 3
_HELD_BYTES = 64 << 20
"""Tables that a task holds at once; a single one may be larger."""
_HELD_PLACES, _HELD_LINES = 10_000, 1_000


class PlacementWriter:
    """Writes the placements of one task one behind the other."""

    def __init__(self, writer: files.Writer, path: str) -> None:
        self._writer, self._path, self._at = writer, path, 0

    def put(self, placement: Placement) -> list[Any]:
        """Where they are: [path, byte, rows of ``kept``, rows of ``fills``]."""
        where = [self._path, self._at, len(placement.kept), len(placement.fills)]
        for rows in (placement.kept, placement.fills):
            data = np.array(rows, dtype="<i8").reshape(-1)
            self._writer.append(data)
            self._at += data.nbytes
        return where


def _key(name: bytes, queue_id: int) -> int:
    """Few queues share one."""
    return zlib.crc32(name) << 32 | queue_id & 0xFFFFFFFF


class PlanWriter:
    """Says of each queue out of order where its rows are, one line each; ``path``.keys leads to a queue's line.

    little-endian; in the order of keys
        uint64  key         x queues   (``_key``)
        uint64  byte        x queues
        uint64  length      x queues
    """

    def __init__(self, temporary: str, path: str) -> None:
        self._temporary, self._path = temporary, path
        self._writer = files.Writer(temporary, path)
        self._rows, self._held, self._at = array("Q"), list[bytes](), 0

    def put(self, topic: str, queue_id: int, where: list[Any]) -> None:
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
        """The plan's path; nothing when no queue is out of order."""
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
        self._writer.abandon()


class Placements(Generic[Table]):
    """Tables by queue, read when they are asked for. ``plan`` is what a PlanWriter wrote, or nothing; ``table`` makes a table
    of a queue's rows.
    """

    def __init__(self, plan: str, table: Callable[[Queue, Rows, Rows], Table]) -> None:
        self._plan, self._table = plan, table
        data = files.read_bytes(files.beside(plan, ".keys")) if plan else b""
        self._keys, self._at, self._length = np.frombuffer(data, "<u8").reshape(3, -1)
        self._places: OrderedDict[Queue, list[Any] | None] = OrderedDict()
        self._held: OrderedDict[Queue, tuple[Table, int]] = OrderedDict()
        self._bytes = 0

    def having(self, queues: Sequence[Queue]) -> npt.NDArray[np.bool_]:
        """Which of the queues have a table."""
        keys = np.fromiter((_key(*queue) for queue in queues), np.uint64, len(queues))
        found = np.searchsorted(self._keys, keys, "left") < np.searchsorted(self._keys, keys, "right")
        for k in np.flatnonzero(found).tolist():
            found[k] = self._where(queues[k]) is not None
        return found

    def _where(self, queue: Queue) -> list[Any] | None:
        if queue not in self._places:
            if len(self._places) >= _HELD_PLACES:
                self._places.popitem(last=False)
            self._places[queue] = self._look_up(queue)
        return self._places[queue]

    def _look_up(self, queue: Queue) -> list[Any] | None:
        key = np.uint64(_key(*queue))
        low, high = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        if low == high:
            return None
        with files.Reader(self._plan) as reader:
            for k in range(low, high):
                name, queue_id, where = json.loads(reader.read(int(self._at[k]), int(self._length[k])))
                if (name.encode(), queue_id) == queue:
                    return list(where)
        return None

    def get(self, queue: Queue) -> Table | None:
        where = self._where(queue)
        if where is None:
            return None
        if queue not in self._held:
            path, at, kept, fills = where
            size = 8 * (KEPT * kept + FILLS * fills)
            with files.Reader(path) as reader:
                rows = np.frombuffer(reader.read(at, size), "<i8")
            while self._held and self._bytes + size > _HELD_BYTES:
                self._bytes -= self._held.popitem(last=False)[1][1]
            self._held[queue] = (self._table(queue, rows[: KEPT * kept], rows[KEPT * kept :]), size)
            self._bytes += size
        self._held.move_to_end(queue)
        return self._held[queue][0]
