"""Ask of a segment's bytes whether its damage is a stale tail (``storage_format.scan.stale_tail``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.scan.stale_tail import Damage, Doubt, StaleTail, StaleTailSearch
from rocketmq_reindex.udfs import files

STALE: Final = "stale tail"
"""how the reason begins that is told of one"""
_PIECE: Final = 16 << 20


def judge_segment(
    path: str, bounds: tuple[int, int, int], holes: Sequence[Damage], told: tuple[int, int] = (0, 0)
) -> StaleTail | Doubt | None:
    """``bounds``: offsets of the segment's first byte, of its file's end and of its end when it is whole.

    ``holes``: what is no good record and has one behind it. ``told``: times of the store's checkpoint. The
    caller knows that no later segment has data: a truncation deletes all files behind the one that it cuts.
    """
    start, data_end, segment_end = bounds
    with files.Reader(path) as reader:

        def read(at: int, out: npt.NDArray[np.uint8]) -> None:
            reader.read_into(at - start, out)

        def view(at: int, count: int) -> npt.NDArray[np.uint8] | None:
            return reader.view(at - start, count)

        return StaleTailSearch(start, data_end, segment_end, read, view, told).find(holes)


def framed(holes: Iterable[Sequence[int]]) -> list[Damage]:
    """The holes of a range's summary."""
    return [Damage.of(offset, length, code) for offset, length, code in holes]


def reason(tail: StaleTail) -> str:
    """What is told of it."""
    return f"{STALE}: {tail.records} old records behind the log's end, left by a truncation: {tail.proof}"


def has_data(path: str, size: int) -> bool:
    """Whether anything in a segment is not zero: one that was allocated ahead holds nothing."""
    with files.Reader(path) as reader:
        at = reader.next_data(0)
        while at < size:
            piece = np.empty(min(_PIECE, size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                return True
            at = reader.next_data(at + len(piece))
    return False
