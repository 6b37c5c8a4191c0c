"""Read a segment by the offsets of the commitlog, and find out from its bytes whether its damage is a stale tail.

It is apart from the listing of segments, which a query does: numpy and numba would double the time of its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.scan.stale_tail import Damage, Doubt, StaleTail, StaleTailSearch
from rocketmq_reindex.udfs import files

_PIECE: Final = 16 << 20
"""bytes that are read at once in the search for one that is not zero"""
Watch = Callable[[int, npt.NDArray[np.uint8]], None]
"""Gets all bytes of the log that are read, each piece with its offset"""


class SegmentReader:
    """The file of one segment, which begins at offset ``start`` of the commitlog; a context manager.

    ``watch`` gets all bytes that are read. Up to offset ``ahead`` of the commitlog bytes are loaded ahead of what is viewed, in
    order; with ``let_go`` they leave the page cache again (``files.Reader.read_ahead``). Raises OSError or InputError as
    ``files.Reader`` does.
    """

    def __init__(self, path: str, start: int, watch: Watch | None = None, ahead: int = 0, let_go: bool = False) -> None:
        self._reader, self._start, self._watch = files.Reader(path), start, watch
        if ahead > start:
            self._reader.read_ahead(ahead - start, let_go)

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` (uint8) with the bytes from offset ``at`` of the commitlog on."""
        self._reader.read_into(at - self._start, out)
        if self._watch is not None:
            self._watch(at, out)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """``count`` bytes (uint8) from offset ``at`` on, mapped into memory; None where only ``read`` works."""
        data = self._reader.view(at - self._start, count)
        if data is not None and self._watch is not None:
            self._watch(at, data)
        return data

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, trace)


def find_stale_tail(
    path: str, bounds: tuple[int, int, int], holes: Sequence[Damage], checkpoint_times: tuple[int, int] = (0, 0)
) -> StaleTail | Doubt | None:
    """The stale tail of the segment at ``path``, doubt whether there is one, or None.

    ``bounds`` are phy_offsets: of the segment's first byte, of its file's end, and of its end when it is whole. ``holes`` are
    stretches without a good record that have one behind them. ``checkpoint_times`` are physicMsgTimestamp and
    logicsMsgTimestamp of the store's checkpoint in milliseconds, 0 where unknown. The caller knows that no later segment has
    data: a truncation (``MappedFileQueue.truncateDirtyFiles``, RocketMQ 5.3) deletes all files behind the one that it cuts.
    """
    start, data_end, segment_end = bounds
    with SegmentReader(path, start) as segment:
        return StaleTailSearch(start, data_end, segment_end, segment.read, segment.view, checkpoint_times).find(holes)


def has_data(path: str, size: int) -> bool:
    """Whether the file at ``path`` of ``size`` bytes holds a byte that is not zero.

    A broker allocates the next segment ahead: that one holds zeros.
    """
    with files.Reader(path) as reader:
        at = reader.next_data(0)
        while at < size:
            piece = np.empty(min(_PIECE, size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                return True
            at = reader.next_data(at + len(piece))
    return False
