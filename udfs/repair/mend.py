"""Decide what stands in the place of each damaged stretch: the bytes of a replica, or fillers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rocketmq_reindex.storage_format import errors, repair, showing
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.replicas import Replica, Walker, message_of, record_bytes
from rocketmq_reindex.udfs.repair.segments import KeptBytes

NEIGHBOURS: Final = 16
"""Good records on each side of damage that a replica may have otherwise."""


@dataclass
class Mended(handover.TaskResult):
    """What stands in the place of one damaged stretch [offset, offset + length).

    ``low`` and ``high`` bound the bytes that are replaced: more than the stretch where it is too small for any record, and a
    neighbour goes with it. ``replica`` counts from 1, 0 for none.
    """

    offset: int
    length: int
    low: int
    high: int
    start: int
    places: list[repair.DamagedPlace]
    replica: int
    pieces: list[repair.Piece]
    kept: KeptBytes = field(default_factory=KeptBytes)
    """what quarantine/ has of it, once all is decided"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Mended:
        """Return the result with these fields, as JSON holds them."""
        fields["places"] = [repair.DamagedPlace(*place) for place in fields["places"]]
        fields["pieces"] = [repair.Piece.of_fields(piece) for piece in fields["pieces"]]
        fields["kept"] = KeptBytes.of_fields(fields["kept"])
        return cls(**fields)

    @property
    def reason(self) -> str:
        """Why it is damage: each reason once."""
        return repair.reason_of(self.places)


class _Side(NamedTuple):
    """A good record beside damage; ``message`` is what it holds, ``time`` its store time."""

    place: repair.RecordAt
    message: Message

    @property
    def time(self) -> int:
        return self.message.store_time

    @property
    def cost(self) -> tuple[int, int]:
        """What is lost with the record: messages, then bytes. A rolled-back one gives no message to anybody."""
        if self.message.sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_ROLLBACK:
            return 0, self.message.size
        count = self.message.properties.get("INNER_NUM", "1")
        return int(count) if count.isdecimal() and len(count) < 6 else 1, self.message.size


@dataclass(frozen=True)
class MendDamage:
    """Mends a task's share of the damaged stretches; leaves results (``Mended``).

    ``plan`` is the plan of ``SegmentDamage``, which ``tasks`` tasks share, ``replicas`` that of the replicas' segments.
    ``settings`` are those of the scan.
    """

    plan: str
    replicas: str
    tasks: int
    settings: ScanSettings
    only_replicas: bool = False
    """nothing is done where no replica has the stretch: it gets no pieces"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        damages = [repair.SegmentDamage.of_fields(fields) for fields in handover.read_plan(self.plan)]
        replicas = [Replica.of_fields(listed) for listed in handover.read_plan(self.replicas)]
        # What a replica gives has right CRCs, whatever is asked of this log.
        walker = Walker(replace(self.settings, crc_mode=max(self.settings.crc_mode, r.CRC_BODY)))
        neighbours = _Neighbours(walker, damages)
        for task in handover.numbers(batches):
            mended = [self._mend(walker, replicas, neighbours, damage) for damage in handover.share(damages, task, self.tasks)]
            yield handover.batch(mended)

    def _mend(self, walker: Walker, replicas: list[Replica], neighbours: _Neighbours, damage: repair.SegmentDamage) -> Mended:
        # A replica that has the records beside the damage as they are here comes first.
        for passed_max in (0, NEIGHBOURS):
            for number, replica in enumerate(replicas, 1):
                piece = _taken(walker, replica, damage, neighbours, passed_max)
                if piece is not None:
                    return _mended(damage, piece.low, piece.high, number, [piece])
        if self.only_replicas:
            return _mended(damage, damage.offset, damage.end, 0, [])
        low, high, pieces = _lost(damage, next(neighbours.before(damage), None), next(neighbours.behind(damage), None))
        return _mended(damage, low, high, 0, pieces)


def _mended(damage: repair.SegmentDamage, low: int, high: int, replica: int, pieces: list[repair.Piece]) -> Mended:
    return Mended(damage.offset, damage.length, low, high, damage.segment.start, list(damage.places), replica, pieces)


def _side(place: repair.RecordAt) -> _Side | None:
    """Return the record at ``place``, read."""
    message = message_of(record_bytes(place), place.offset)
    return _Side(place, message) if message else None


class _Neighbours:
    """The good records on both sides of damage, the nearest first, also beyond other damage and in the segment beside.

    They end where the log does. None stands where nobody knows what is further.
    """

    def __init__(self, walker: Walker, damages: Sequence[repair.SegmentDamage]) -> None:
        """``damages`` has all damage of the log, in order."""
        self._walker = walker
        self._from = {damage.offset: damage for damage in damages}
        self._to = {damage.end: damage for damage in damages}

    def before(self, damage: repair.SegmentDamage) -> Iterator[_Side | None]:
        """Yield the good records before the damage."""
        at = damage.offset
        while True:
            for anchor in reversed(damage.anchors):
                for side in self._back(damage.segment, anchor, at):
                    yield side
                    at = side.place.offset
            nearer = self._to.get(at)
            if nearer is None or nearer.segment != damage.segment:
                break
            damage = nearer
            at = damage.offset
        if damage.anchors and at != damage.segment.start:
            yield None
            return
        if last := damage.before:
            yield _side(last)
            yield from self._back(last.segment, last.anchor, last.offset)
            yield None

    def _back(self, segment: Segment, anchor: int, stop: int) -> Iterator[_Side]:
        """Yield the good records before ``stop``, back to the good one at ``anchor``."""
        while anchor < stop:
            stop = self._walker.walk(segment, anchor, stop).last_good
            if side := _side(repair.RecordAt(segment, stop)):
                yield side

    def behind(self, damage: repair.SegmentDamage) -> Iterator[_Side | None]:
        """Yield the good records behind the damage."""
        segment, at, after = damage.segment, damage.end, damage.after
        beside = False
        while True:
            # First, since a record out of line is damage, too, and its bytes are sound.
            if nearer := self._from.get(at):
                segment, at, after, beside = nearer.segment, nearer.end, nearer.after, False
            elif side := self._good_at(segment, at):
                yield side
                at = side.place.offset + side.message.size
            elif after is not None:
                # The segment's filler goes up to the next one.
                segment, at, after, beside = after.segment, after.offset, None, True
            else:
                if beside:
                    yield None
                return

    def _good_at(self, segment: Segment, at: int) -> _Side | None:
        """Return the good record of ``segment`` that begins at ``at``."""
        if at >= segment.data_end or self._walker.walk(segment, at, at + 1).last_good != at:
            return None
        return _side(repair.RecordAt(segment, at, at))


def _taken(
    walker: Walker, replica: Replica, damage: repair.SegmentDamage, neighbours: _Neighbours, passed_max: int
) -> repair.Piece | None:
    """Return the stretch as ``replica`` has it, if that is certain: good records beside it are equal in both logs.

    ``passed_max`` as in ``_border``.
    """
    low, is_proved = _border(walker, replica, damage, neighbours.before(damage), damage.offset, passed_max)
    high, is_proved_behind = _border(walker, replica, damage, neighbours.behind(damage), damage.end, passed_max)
    if low < 0 or high < 0 or not (is_proved or is_proved_behind):
        return None
    segment = replica.chains(walker, damage, low, high)
    return repair.Piece(repair.COPY, low, high, segment.path, segment.start) if segment else None


def _border(
    walker: Walker, replica: Replica, damage: repair.SegmentDamage, sides: Iterator[_Side | None], at: int, passed_max: int
) -> tuple[int, bool]:  # fmt: skip
    """Return where the bytes to be taken begin or end, and whether a record is equal in both logs there. -1 where it is another
    log.

    Beside damage a record may be spoilt where no CRC covers it, and the replica may have damage of its own. So up to
    ``passed_max`` records that it has otherwise are passed, if they are the same messages, or damage there. The same messages
    that lie right beside the stretch go with it. All others stay as the log has them. Where the log ends before a record is
    equal, the other side has to have one.
    """
    is_damaged = False
    for passed, side in enumerate(sides):
        if side and replica.has(side.place):
            return at, True
        if side is None or passed == passed_max:
            return -1, False
        if not replica.is_sound(walker, side.place):
            is_damaged = True
        elif replica.is_alike(side.place):
            edges = [side.place.offset, side.place.offset + side.message.size]
            if side.place.segment == damage.segment and at in edges:
                at = sum(edges) - at
        else:
            return -1, False
    return (-1 if is_damaged else at), False


def _lost(damage: repair.SegmentDamage, before: _Side | None, after: _Side | None) -> tuple[int, int, list[repair.Piece]]:
    """Return what stands for lost bytes: (low, high, pieces). A stretch too small for any record takes a neighbour with it: the
    one with which fewer messages are lost, then fewer bytes. At the end of a file that is too short it takes bytes that the
    file does not have.

    Raises InputError where that does not help.
    """
    sides = [side for side in (before, after) if side]
    if not sides:
        raise errors.InputError(
            f"offset {damage.offset}: no good record before or behind the damage: this log cannot be repaired"
        )
    # Of the record before; never 0, which a recovery takes for the end of the log.
    time = max(1, next((side.time for side in sides if side.time > 0), 1))
    demands = repair.Demands(
        any("__CRC32#" in side.message.properties for side in sides),
        any("DUP_INFO" in side.message.properties for side in sides),
    )
    bounds, low, high = (damage.segment.start, damage.segment.segment_end), damage.offset, damage.end
    if high == damage.segment.data_end:
        high = max(high, min(low + demands.filler_min, damage.segment.segment_end))
    neighbours = sorted((side for side in sides if _touches(side, damage)), key=lambda side: side.cost)
    while (pieces := repair.lost_pieces(low, high, bounds, time, demands)) is None:
        if not neighbours:
            place = f"{showing.escape(damage.segment.path)}: offset {damage.offset}"
            raise errors.InputError(
                f"{place}: {damage.length:,} bytes are too few for a record, and no record beside them can go with them"
            )
        taken = neighbours.pop(0)
        low, high = min(low, taken.place.offset), max(high, taken.place.offset + taken.message.size)
    return low, high, pieces


def _touches(side: _Side, damage: repair.SegmentDamage) -> bool:
    """Return whether the record lies right beside the stretch, in its segment."""
    at, end = side.place.offset, side.place.offset + side.message.size
    return side.place.segment == damage.segment and (end == damage.offset or at == damage.end)
