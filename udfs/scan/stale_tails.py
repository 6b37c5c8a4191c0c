"""Find out from a segment's bytes whether its damage is a stale tail (``storage_format.scan.stale_tail``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rocketmq_reindex.storage_format.scan.stale_tail import Damage, Doubt, StaleTail, StaleTailSearch
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader

STALE: Final = "stale tail"
"""How the reason of a stale tail begins."""
_PIECE: Final = 16 << 20


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


def framed(holes: Iterable[Sequence[int]]) -> list[Damage]:
    """The holes of a range's summary, [phy_offset, bytes, code] each, as damage."""
    return [Damage.of(offset, length, code) for offset, length, code in holes]


def reason(tail: StaleTail) -> str:
    """The reason that a summary gives for a stale tail."""
    return f"{STALE}: {tail.records} old records behind the log's end, left by a truncation: {tail.proof}"


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
