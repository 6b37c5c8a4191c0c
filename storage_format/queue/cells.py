"""Packed cells: columns of many queues in one binary value. Nothing else of the messages passes through a Spark row.

little-endian
0   int64   pieces p
8   int64   rows n
16  int32   name length   x p      (UTF-8 bytes)
    int32   queue id      x p
    int32   rows          x p
    int64   base, width   x columns
    uint    column        x n      (each in its width: what is above its base; the rows of a piece lie together)
    bytes   names

A column takes 1, 2, 4 or 8 bytes a row, as its values need: units come down from 32 bytes to half or less, and each byte is
copied about ten times on its way through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

UNIT_COLUMNS: Final = 4
"""queue offset, physical offset, size, tagsCode"""
RUN_COLUMNS: Final = 4
"""first queue offset, offsets, physical offset of the first record, end of the last one: as ``runs.Run``"""
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
class Pieces:
    """Rows of several queues: piece i is ``counts[i]`` rows of the queue (``names[i]``, ``queue_ids[i]``).

    ``columns``: int64 (columns, rows), the rows of all pieces one after another.
    """

    names: list[bytes]
    queue_ids: Int32s
    counts: Int32s
    columns: Int64s

    def parts(self) -> Iterator[tuple[bytes, int, Int64s]]:
        """Each piece as (name, queue id, columns)."""
        at = 0
        for name, queue_id, count in zip(self.names, self.queue_ids.tolist(), self.counts.tolist(), strict=True):
            yield name, queue_id, self.columns[:, at : at + count]
            at += count


def _narrow(column: Int64s) -> tuple[int, int, bytes]:
    """(base, width, bytes) of one column."""
    if not len(column):
        return 0, 1, b""
    base, high = int(column.min()), int(column.max())
    for width in _NARROW:
        if high - base < 1 << 8 * width:
            return base, width, (column - base).astype(f"<u{width}").tobytes()
    return 0, 8, column.astype("<i8", copy=False).tobytes()


def pack(names: list[bytes], queue_ids: Int32s, counts: Int32s, columns: Int64s) -> bytes:
    """Pack pieces into one cell. The arguments are the fields of ``Pieces``; ``unpack`` is the inverse."""
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


def unpack(cell: bytes, columns: int) -> Pieces:
    """Unpack a cell whose pieces have so many columns."""
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
    return Pieces(names, table[1], table[2], body)
