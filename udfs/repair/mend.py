"""Decide what stands in the place of each damaged stretch: the bytes of a replica, or fillers; keep what was there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair.damage import Damage, RecordAt
from rocketmq_reindex.storage_format.repair.pieces import COPY, Piece, lost_pieces
from rocketmq_reindex.storage_format.repair.records import Demands
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import plans, results
from rocketmq_reindex.udfs.repair.quarantine import Kept, keep
from rocketmq_reindex.udfs.repair.replicas import Replica
from rocketmq_reindex.udfs.repair.walking import SegmentFile, Walker, record_bytes
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder

REPLICA: Final = "replica"
FILLED: Final = "filler"


@dataclass
class Mended(Result):
    """What stands in the place of one damaged stretch [offset, offset + length).

    ``low`` and ``high`` bound the bytes that are replaced: more than the stretch where it is too small for any record, and a
    neighbour goes with it. ``replica`` counts from 1, 0 for none.
    """

    offset: int
    length: int
    low: int
    high: int
    start: int
    reason: str
    replica: int
    pieces: list[Piece]
    digest: str = ""
    """of the bytes that were there; "" where none were"""
    entries: list[dict[str, Any]] = field(default_factory=list)
    """of the manifest: the files of the quarantine"""
    records: int = 0
    """records in it whose frame is sound"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Mended:
        """The result with these fields, as JSON holds them."""
        fields["pieces"] = [Piece.of_fields(piece) for piece in fields["pieces"]]
        return cls(**fields)


class _Side(NamedTuple):
    """A good record beside damage; ``message`` is what it holds, ``time`` its store time."""

    place: RecordAt
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

    ``plan`` is the plan of ``Damage``, which ``tasks`` tasks share, ``replicas`` that of the replicas' segments. ``settings``
    are those of the scan.
    """

    staging: StagingFolder
    plan: str
    replicas: str
    tasks: int
    settings: ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [Damage.of_fields(fields) for fields in plans.read_plan(self.plan)]
        replicas = [Replica.of_fields(listed) for listed in plans.read_plan(self.replicas)]
        walker = Walker(self.settings)
        for task in plans.numbers(batches):
            mended = [self._mend(walker, replicas, damage) for damage in plans.share(found, task, self.tasks)]
            yield results.batch(mended)

    def _mend(self, walker: Walker, replicas: list[Replica], damage: Damage) -> Mended:
        before, after = _before(walker, damage), _after(walker, damage)
        borders = [side.place for side in (before, after) if side]
        for number, replica in enumerate(replicas, 1):
            segment = replica.has(walker, damage, borders)
            if segment is not None:
                low, high = damage.offset, damage.end
                piece = Piece(COPY, low, high, segment.path, segment.start)
                return _mended(damage, low, high, number, [piece], keep(self.staging, walker, damage, low, high))
        low, high, pieces = _lost(damage, before, after)
        return _mended(damage, low, high, 0, pieces, keep(self.staging, walker, damage, low, high))


def _mended(damage: Damage, low: int, high: int, replica: int, pieces: list[Piece], kept: Kept) -> Mended:
    return Mended(
        damage.offset, damage.length, low, high, damage.start, damage.reason, replica, pieces, kept.digest, kept.entries,
        kept.records,
    )  # fmt: skip


def _side(place: RecordAt) -> _Side | None:
    """The record at ``place``, read."""
    data = record_bytes(place)
    found = read_message(lambda at, count: data[at : at + count], place.offset, len(data))
    return _Side(place, found) if isinstance(found, Message) else None


def _before(walker: Walker, damage: Damage) -> _Side | None:
    """The last good record before a stretch."""
    if damage.anchor < 0:
        return _side(damage.before) if damage.before else None
    file = SegmentFile(damage.path, damage.start, damage.data_end, damage.segment_end)
    found = walker.walk(file, damage.anchor, damage.offset)
    if found.last_good < 0:
        return None
    return _side(RecordAt(damage.path, damage.start, damage.data_end, found.last_good))


def _after(walker: Walker, damage: Damage) -> _Side | None:
    """The first good record behind a stretch."""
    if damage.end >= min(damage.segment_end, damage.data_end):
        return _side(damage.after) if damage.after else None
    file = SegmentFile(damage.path, damage.start, damage.data_end, damage.segment_end)
    found = walker.walk(file, damage.end, damage.end + 1)
    if found.last_good != damage.end:
        return None
    return _side(RecordAt(damage.path, damage.start, damage.data_end, damage.end))


def _lost(damage: Damage, before: _Side | None, after: _Side | None) -> tuple[int, int, list[Piece]]:
    """What stands for lost bytes: (low, high, pieces). A stretch too small for any record takes a neighbour with it: the one
    with which fewer messages are lost, then fewer bytes.

    Raises InputError where that does not help.
    """
    sides = [side for side in (before, after) if side]
    if not sides:
        raise InputError(f"offset {damage.offset}: no good record before or behind the damage: this log cannot be repaired")
    # Of the record before; never 0, which a recovery takes for the end of the log.
    time = max(1, next((side.time for side in sides if side.time > 0), 1))
    demands = Demands(
        any("__CRC32#" in side.message.properties for side in sides),
        any("DUP_INFO" in side.message.properties for side in sides),
    )
    bounds, low, high = (damage.start, damage.segment_end), damage.offset, damage.end
    neighbours = sorted((side for side in sides if _touches(side, damage)), key=lambda side: side.cost)
    while (pieces := lost_pieces(low, high, bounds, time, demands)) is None:
        if not neighbours:
            where = f"{escape(damage.path)}: offset {damage.offset}"
            raise InputError(
                f"{where}: {damage.length} bytes are too few for a record, and no record beside them can go with them"
            )
        taken = neighbours.pop(0)
        low, high = min(low, taken.place.offset), max(high, taken.place.offset + taken.message.size)
    return low, high, pieces


def _touches(side: _Side, damage: Damage) -> bool:
    """Whether the record lies right beside the stretch, in its segment."""
    at, end = side.place.offset, side.place.offset + side.message.size
    return side.place.start == damage.start and (end == damage.offset or at == damage.end)
