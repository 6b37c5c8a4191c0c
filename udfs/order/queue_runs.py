"""The runs of queue offsets of many queues, in one array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.runs import broken_at


class QueueRuns:
    """The runs of the queues of one bucket: those of one queue together, in the order of the log.

    ``some`` are unpacked cells of ``cells.RUN_COLUMNS`` or ``cells.BATCH_RUN_COLUMNS`` columns (int64).
    """

    def __init__(self, some: Iterable[cells.Pieces]) -> None:
        numbers: dict[tuple[bytes, int], int] = {}
        owners, parts = [np.zeros(0, np.int32)], []
        for pieces in some:
            queues = zip(pieces.names, pieces.queue_ids.tolist(), strict=True)
            found = np.fromiter((numbers.setdefault(queue, len(numbers)) for queue in queues), np.int32, len(pieces.names))
            owners.append(np.repeat(found, pieces.counts))
            parts.append(pieces.columns)
        owner, columns = np.concatenate(owners), np.concatenate(parts, axis=1)
        order = np.lexsort((columns[2], owner))
        self._queues = list(numbers)
        self._columns = columns[:, order]
        self._bounds = np.searchsorted(owner[order], np.arange(len(numbers) + 1))

    def pre_blank(self, units_per_file: int) -> int:
        """How many units stand before the first one of a queue in its first file, summed over all queues."""
        return int((self._columns[0, self._bounds[:-1]] % units_per_file).sum())

    def odd(
        self, fills_head: Callable[[int, int], bool] | None = None
    ) -> Iterator[tuple[tuple[bytes, int], npt.NDArray[np.int64]]]:
        """Each queue out of order, by topic and queue id, with its runs (int64, columns by runs).

        ``fills_head``: tells by queue offset and phy_offset of a queue's first record whether something stands before it: such
        a queue is one of them.
        """
        breaks = broken_at(self._columns)
        owners = np.searchsorted(self._bounds, breaks, side="right") - 1
        inside = set(owners[breaks != self._bounds[owners]].tolist())
        if fills_head:
            firsts = self._columns[:, self._bounds[:-1]]
            later = np.flatnonzero(firsts[0])
            inside |= {k for k in later.tolist() if fills_head(int(firsts[0, k]), int(firsts[2, k]))}
        for k in sorted(inside, key=self._queues.__getitem__):
            yield self._queues[k], self._columns[:, self._bounds[k] : self._bounds[k + 1]]
