"""Which records without a unit are of an earlier life of their queue: later ones of it took their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.start.kept import Int64s

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
        left = np.where(inside, np.clip(lowest - low, 0, self._counts), self._counts)
        self.earlier += int((self._counts - left).sum())
        # A batch stays as it is: its offset is its first message's.
        cut = inside & (self._counts == self._stretches[:, _HIGH] - low)
        self._stretches[cut, _HIGH] = np.maximum(low[cut], lowest)
        self._stretches, self._counts = self._stretches[left > 0], left[left > 0]

    def _keep(self, which: Int64s, queue_offset: Int64s, messages: Int64s, at: Int64s, size: Int64s) -> None:
        if not len(which):
            return
        low, high = queue_offset[which], queue_offset[which] + messages[which]
        # A stretch with a batch holds that alone: so it has a record for each offset, or one. So does one below 0.
        single = (messages[which] == 1) & (low >= 0)
        follows = (low[1:] == high[:-1]) & single[1:] & single[:-1]
        begins = np.flatnonzero(np.concatenate(([True], ~follows)))
        ends = np.append(begins[1:], len(which)) - 1
        found = np.stack((low[begins], high[ends], at[which[begins]], at[which[ends]] + size[which[ends]]), 1)
        counts = ends - begins + 1
        if len(self._counts) and found[0, _LOW] == self._stretches[-1, _HIGH] and single[0] and self._is_single_at_end():
            self._stretches[-1, [_HIGH, _END]] = found[0, [_HIGH, _END]]
            self._counts[-1] += counts[0]
            found, counts = found[1:], counts[1:]
        self._stretches, self._counts = np.concatenate((self._stretches, found)), np.concatenate((self._counts, counts))

    def _is_single_at_end(self) -> bool:
        low, high = self._stretches[-1, :2]
        return bool(low >= 0 and self._counts[-1] == high - low)

    def hidden(self) -> HiddenRecords:
        """What no consumer gets, of all that was taken."""
        if self.is_empty:
            return HiddenRecords(0, INT64_MAX, -1, -1, -1)
        low = self._stretches[:, _LOW]
        return HiddenRecords(
            int(self._counts.sum()), int(low[low >= 0].min(initial=INT64_MAX)), int(self._stretches[:, _HIGH].max()),
            int(self._stretches[:, _FIRST].min()), int(self._stretches[:, _END].max()),
        )  # fmt: skip
