"""What a check of one queue needs to know of its files and its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QueueView:
    """One queue as a checker reads it.

    - ``read(position, count)``: the fields of slots in the order of their layout, int64 (3 or 8, count); zeros without a file.
    - ``spans``: for each file, in order, the positions of its first slot and behind its last.
    - ``data_from(position)``: the first position from there on that may not be zeros.
    - ``look(phy_offset)``: the queue offset of the queue's good record there, -1 for one of another queue, None for none.
    - ``path(position)``: the slot's file.
    - ``log``: absolute offsets of the log's first byte and its end.
    - ``unread``: stretches [low, high) of the log that were not read.
    - ``stale``: the stretch [low, high) of old records behind the log's end.
    """

    read: Callable[[int, int], Int64s]
    spans: tuple[tuple[int, int], ...]
    data_from: Callable[[int], int]
    look: Callable[[int], int | None]
    path: Callable[[int], str]
    log: tuple[int, int]
    unread: tuple[tuple[int, int], ...] = ()
    batch: bool = False
    stale: tuple[int, int] | None = None
