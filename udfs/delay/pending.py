"""Find the first half message that still waits for its producer, among the results of all buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.udfs import files, plans, results

_WINDOW: Final = 1 << 26
"""Queue offsets that are looked at at once, a byte each"""
_WINDOWS_MAX: Final = 64
"""More of them hold offsets that no broker has given: then the search ends early, which loses no message."""


@dataclass(frozen=True)
class FirstPending:
    """Finds the lowest queue offset of a half message of which there is no newer copy, and which no op message names.

    ``plan`` is the path of a plan of [path, count]: files that JoinDelayed wrote. Half messages from ``end`` on are not looked
    at. The one task answers with the offset, or with ``end``.
    """

    plan: str
    end: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in plans.numbers(batches):
            yield results.texts_batch([str(self.first())])

    def first(self) -> int:
        """The offset."""
        low = -1
        for _ in range(_WINDOWS_MAX):
            above = (one[np.searchsorted(one, low) :] for one in self._newest())
            low = min((int(one[0]) for one in above if len(one)), default=self.end)
            if low >= self.end:
                return self.end
            pending = np.zeros(min(_WINDOW, self.end - low), np.bool_)
            for offsets in self._newest():
                pending[_within(offsets, low, len(pending))] = True
            for offsets in self._decided():
                pending[_within(offsets, low, len(pending))] = False
            if pending.any():
                return low + int(np.argmax(pending))
            low += len(pending)
        return low

    def _newest(self) -> Iterator[npt.NDArray[np.int64]]:
        for path, count in plans.read_plan(self.plan):
            with files.Reader(path) as reader:
                yield np.frombuffer(reader.read(0, 8 * count), np.int64)

    def _decided(self) -> Iterator[npt.NDArray[np.int64]]:
        for path, count in plans.read_plan(self.plan):
            with files.Reader(path) as reader:
                yield np.frombuffer(reader.read(8 * count, reader.size() - 8 * count), np.int64)


def _within(offsets: npt.NDArray[np.int64], low: int, count: int) -> npt.NDArray[np.int64]:
    """Those of [low, low + count), counted from ``low``."""
    found: npt.NDArray[np.int64] = offsets[(offsets >= low) & (offsets < low + count)] - low
    return found
