"""Put ordinary records at queue offsets whose messages are lost, in the place of the lost bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rocketmq_reindex.jobs.repairing.odd import Gap
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair.pieces import COPY, TOMBSTONE, Piece, lost_pieces
from rocketmq_reindex.storage_format.repair.records import tombstone_min
from rocketmq_reindex.udfs.repair.mend import Mended


@dataclass
class _Room:
    """The lost bytes of one range, and the tombstones that stand in it; ``at`` is where the next one begins.

    ``end`` is where the last one may end: up to the end of a segment no record may reach, as behind it a recovery looks for the
    segment's filler.
    """

    one: Mended
    at: int
    end: int
    pieces: list[Piece] = field(default_factory=list)

    def put(self, gap: Gap) -> Gap:
        """Put records for as many offsets of ``gap`` as there is room for; returns what is left of it."""
        first = self.one.pieces[0]
        topic = gap.topic.encode()
        size = tombstone_min(topic, first.demands)
        count = min(gap.offsets, (self.end - self.at) // size)
        for number in range(count):
            self.pieces.append(replace(
                first, kind=TOMBSTONE, low=self.at, high=self.at + size, topic=topic.hex(), queue=gap.queue,
                queue_offset=gap.queue_offset + number,
            ))  # fmt: skip
            self.at += size
        return gap._replace(queue_offset=gap.queue_offset + count, offsets=gap.offsets - count)

    def filled(self, bounds: tuple[int, int]) -> Mended:
        """The range with its tombstones, and what stands behind them."""
        first = self.one.pieces[0]
        if not self.pieces:
            return self.one
        rest: list[Piece] | None = []
        if self.at < self.one.high:
            rest = lost_pieces(self.at, self.one.high, bounds, first.time, first.demands)
        if rest is None:
            # Too few bytes for a record are the last tombstone's body.
            rest = []
            self.pieces[-1] = replace(self.pieces[-1], high=self.one.high)
        return replace(self.one, pieces=[*self.pieces, *rest])


def with_tombstones(mended: Sequence[Mended], gaps: Iterable[Gap], ends: dict[int, int]) -> tuple[list[Mended], int]:
    """Return the ranges with tombstones for the ``gaps``, and how many lost offsets have found no room.

    ``ends`` has the end of each segment by its start. A gap that one range alone can have comes first.
    """
    rooms = [
        _Room(one, one.low, one.high - (r.FILLER_MIN if one.high == ends[one.start] else 0))
        for one in mended
        if one.pieces[0].kind != COPY
    ]
    left = 0
    for gap, mine in sorted(((gap, _of(gap, rooms)) for gap in gaps), key=lambda each: len(each[1])):
        rest = gap
        for room in mine:
            if rest.offsets:
                rest = room.put(rest)
        left += rest.offsets
    filled = {room.one.low: room.filled((room.one.start, ends[room.one.start])) for room in rooms}
    return [filled.get(one.low, one) for one in mended], left


def _of(gap: Gap, rooms: Sequence[_Room]) -> list[_Room]:
    """The ranges in which the records of a gap may have lain, in order."""
    return [room for room in rooms if gap.low <= room.one.low and room.one.high <= gap.high]
