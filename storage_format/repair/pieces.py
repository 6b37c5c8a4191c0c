"""What stands in a repaired segment in the place of damage: pieces, each a stretch of bytes that is made in one way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair import records
from rocketmq_reindex.storage_format.repair.records import Demands

COPY: Final = "copy"
FILLER: Final = "filler"
BLANK: Final = "blank"
TOMBSTONE: Final = "tombstone"


@dataclass(frozen=True)
class Piece:
    """Bytes [low, high) of the log, absolute, and how they are made.

    ``copy``: from the file ``path`` of a segment that begins at ``start``. ``filler``: lost-record fillers with the store time
    ``time``. ``blank``: the filler of a segment's end. ``tombstone``: one record of ``topic`` (its bytes in hex), ``queue`` and
    ``queue_offset``.
    """

    kind: str
    low: int
    high: int
    path: str = ""
    start: int = 0
    time: int = 0
    property_crc: bool = False
    dup_info: bool = False
    topic: str = ""
    queue: int = 0
    queue_offset: int = 0
    range: int = -1
    """number of the range of changed bytes that it is of; -1: it is of the old segment"""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.high - self.low

    @property
    def demands(self) -> Demands:
        """What its records carry."""
        return Demands(self.property_crc, self.dup_info)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Piece:
        """The piece with these fields."""
        return cls(**fields)

    def made(self) -> Iterator[bytes]:
        """Yield the bytes of a piece that is no copy; zeros follow up to ``high``. Raises ValueError where it has no room."""
        if self.kind == FILLER:
            yield from records.fillers(self.low, self.size, self.time, self.demands)
        elif self.kind == BLANK:
            yield records.blank(self.size)
        elif self.kind == TOMBSTONE:
            topic = bytes.fromhex(self.topic)
            yield records.tombstone(self.low, self.time, self.demands, topic, self.queue, self.queue_offset, self.size)


def lost_pieces(low: int, high: int, segment: tuple[int, int], time: int, demands: Demands) -> list[Piece] | None:
    """Return the pieces that stand for the lost bytes [low, high); None where they are too few for any.

    ``segment`` is (start, end) of the segment. Up to its end stands the filler of a segment's end, which a broker passes over
    without reading it. But a recovery looks for the first record of a segment (``CommitLog.isMappedFileMatchedRecover``): a
    segment that is lost as a whole begins with one.
    """
    start, end = segment

    def piece(kind: str, at: int, stop: int) -> Piece:
        return Piece(kind, at, stop, time=time, property_crc=demands.property_crc, dup_info=demands.dup_info)

    size, least = high - low, demands.filler_min
    if high < end:
        return [piece(FILLER, low, high)] if size >= least else None
    if low > start:
        return [piece(BLANK, low, high)] if size >= r.FILLER_MIN else None
    first = low + records.small_filler(demands)
    if high - first >= r.FILLER_MIN:
        return [piece(FILLER, low, first), piece(BLANK, first, high)]
    return [piece(FILLER, low, high)] if size >= least else None


def covered(pieces: Iterable[Piece], low: int, high: int, path: str, start: int) -> Iterator[Piece]:
    """Yield pieces for all of [low, high): ``pieces``, in order, and copies of the file ``path`` between them."""
    at = low
    for piece in pieces:
        if at < piece.low:
            yield Piece(COPY, at, piece.low, path, start)
        yield piece
        at = piece.high
    if at < high:
        yield Piece(COPY, at, high, path, start)
