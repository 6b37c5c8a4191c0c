"""Where the units of disordered queues go, as packed arrays in staged files: they never pass the driver.

little-endian; one file a judging task, the driver knows only where in it each queue's rows begin
    int64   kept     x 5 x rows    (``Placement.kept``)
    int64   fills    x 3 x rows    (``Placement.fills``)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from storage_format.queue_order import Placement, Rows
from udfs import files

Queue = tuple[bytes, int]
Table = TypeVar("Table")
KEPT, FILLS = 5, 3
_HELD_BYTES = 64 << 20
"""Tables that a task holds at once; a single one may be larger."""


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


class Placements(Generic[Table]):
    """Tables by queue, read when they are asked for. ``entries``: [topic, queue id, where]; ``table`` makes one of its rows."""

    def __init__(self, entries: Iterable[list[Any]], table: Callable[[Queue, Rows, Rows], Table]) -> None:
        self._table = table
        self._where = {(name.encode(), queue_id): where for name, queue_id, where in entries}
        self._held: OrderedDict[Queue, tuple[Table, int]] = OrderedDict()
        self._bytes = 0

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._where

    def get(self, queue: Queue) -> Table | None:
        if queue not in self._where:
            return None
        return self[queue]

    def __getitem__(self, queue: Queue) -> Table:
        if queue not in self._held:
            path, at, kept, fills = self._where[queue]
            size = 8 * (KEPT * kept + FILLS * fills)
            with files.Reader(path) as reader:
                rows = np.frombuffer(reader.read(at, size), "<i8")
            while self._held and self._bytes + size > _HELD_BYTES:
                self._bytes -= self._held.popitem(last=False)[1][1]
            self._held[queue] = (self._table(queue, rows[: KEPT * kept], rows[KEPT * kept :]), size)
            self._bytes += size
        self._held.move_to_end(queue)
        return self._held[queue][0]
