"""Rows and numbers of a whole log, kept in blocks in a spool: memory holds one block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.start.record_loop import LIGHT, Rows, new_rows
from rocketmq_reindex.storage_format.start.work import Spool

Int64s = npt.NDArray[np.int64]
_NUMBERS: Final = 1 << 17
"""of a block"""


def bytes_of(rows: Rows) -> int:
    """Bytes of the records of rows: a light queue has a row of its own for the same record."""
    return int(rows.size[(rows.flags & LIGHT) == 0].sum(dtype=np.int64))


class KeptRows:
    """Rows that are read again, chunk by chunk, in their order."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._chunks: list[tuple[int, int]] = []
        self.bytes = 0
        """of their records"""

    def add(self, rows: Rows) -> None:
        """Keep some more rows."""
        count = len(rows.at)
        if count:
            place = self._spool.put(b"".join(column.tobytes() for column in rows))
            self._chunks.append((place, count))
            self.bytes += bytes_of(rows)

    def chunks(self) -> Iterator[Rows]:
        """What ``add`` was given."""
        kinds = [column.dtype for column in new_rows(0)]
        for place, count in self._chunks:
            columns = list[Any]()
            for kind in kinds:
                columns.append(self._spool.get(place, count * kind.itemsize).view(kind))
                place += count * kind.itemsize
            yield Rows(*columns)


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
            found = np.sort(np.concatenate(self._held))
            place = self._spool.put(found.tobytes())
            self._blocks.append(_Block(place, len(found), int(found[0]), int(found[-1])))
            self._held, self._count = [], 0

    def between(self, low: int, high: int) -> Iterator[Int64s]:
        """The numbers from ``low`` to ``high``, with it, in ascending arrays."""
        for block in self._blocks:
            if block.low <= high and block.high >= low:
                yield self._spool.get(block.place, block.numbers * 8).view(np.int64)
        if self._held:
            self._held = [np.sort(np.concatenate(self._held))]
            yield self._held[0]


def are_among(wanted: Int64s, sorted_numbers: Int64s) -> npt.NDArray[np.bool_]:
    """Which of ``wanted`` are in ``sorted_numbers``."""
    if not len(sorted_numbers):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(sorted_numbers, wanted), len(sorted_numbers) - 1)
    found: npt.NDArray[np.bool_] = sorted_numbers[at] == wanted
    return found
