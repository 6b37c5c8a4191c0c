"""Write the segments of a repaired log, and keep what lay in its damaged stretches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import UsedDigest
from rocketmq_reindex.files.folders import HARD, NONE, REFLINK
from rocketmq_reindex.storage_format import digest as storage_format_digest, layouts, repair, showing
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.replicas import Walker
from rocketmq_reindex.udfs.staging import Position, StagingFolder

# --------------------------------------------------------------------------------------------------------------------- segments
# Write the segments of a repaired log: copies of those of the damaged one, with other bytes where it was damaged.

_CHUNK: Final = 16 << 20
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SegmentPlan:
    """One segment to be written: as it is in the damaged log, where the path of a missing one is "".

    ``pieces`` are the bytes that change, in order. ``link``, one of REFLINK, HARD and NONE, says how an unchanged segment may
    share its bytes with the old file.
    """

    old: Segment
    link: str
    pieces: list[repair.Piece] = field(default_factory=list)

    @classmethod
    def of_fields(cls, fields: list[Any]) -> SegmentPlan:
        """Return the plan with these fields, as ``udfs.handover`` writes them."""
        plan = cls(*fields)
        return replace(plan, old=Segment(*fields[0]), pieces=[repair.Piece(*piece) for piece in plan.pieces])  # type: ignore[misc]  # JSON has lists


@dataclass
class WrittenSegment(handover.TaskResult):
    """A segment that was written: its entry of the manifest, how it came there, and the digest of each range of new bytes."""

    entry: dict[str, Any]
    how: str
    """copy, REFLINK, HARD or NONE"""
    digests: dict[str, str]
    """by the number of the range"""


@dataclass(frozen=True)
class WriteSegments:
    """Writes a task's share of the segments into the staging tree; leaves results (``WrittenSegment``)."""

    staging: StagingFolder
    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned = [SegmentPlan.of_fields(fields) for fields in handover.read_plan(self.plan)]
        for task in handover.numbers(batches):
            for plan in handover.share(planned, task, self.tasks):
                yield handover.batch([self._write(plan)])

    def _write(self, plan: SegmentPlan) -> WrittenSegment:
        old, relative = plan.old, f"{layouts.COMMITLOG}/{plan.old.name}"
        target = files.join(self.staging.tree, relative)
        size = old.segment_end - old.start
        taken = _Taken(Position(self.staging, old.name, size))
        how = self._linked(plan, target)
        if how:
            for data in read(old.path, 0, size):
                taken.take(data)
        else:
            self._make(plan, target, size, taken)
        used, digest = taken.used.finish()
        return WrittenSegment({"path": relative, "size": size, "used": used, "digest": digest}, how or "copy", taken.digests)

    def _linked(self, plan: SegmentPlan, target: str) -> str:
        """Return how an unchanged whole segment came to share its bytes with the old file; "" where it does not."""
        if plan.pieces or plan.link == NONE or plan.old.data_end != plan.old.segment_end:
            return ""
        if plan.link == HARD and files.link(plan.old.path, target):
            return HARD
        return REFLINK if files.clone(plan.old.path, self.staging.temporary, target) else ""

    def _make(self, plan: SegmentPlan, target: str, size: int, taken: _Taken) -> None:
        old, start = plan.old, plan.old.start
        end = max([old.data_end if old.path else start, *(piece.high for piece in plan.pieces)])
        like = {path for path in (old.path, *(piece.path for piece in plan.pieces if piece.kind == repair.COPY)) if path}
        with files.writing(self.staging.temporary, target, like=like) as writer:
            for piece in repair.covered(plan.pieces, start, end, old.path, start):
                taken.begin(piece.range)
                at = piece.low - start
                for data in self._bytes(piece):
                    # Zeros stay a hole, where the file system has holes.
                    if taken.take(data):
                        writer.write_at(at, data)
                    at += len(data)
            writer.finish(size)

    @staticmethod
    def _bytes(piece: repair.Piece) -> Iterator[Bytes]:
        if piece.kind == repair.COPY:
            yield from read(piece.path, piece.low - piece.start, piece.high - piece.start)
            return
        remaining = piece.size
        for data in piece.made():
            remaining -= len(data)
            yield np.frombuffer(data, np.uint8)
        zeros = np.zeros(min(remaining, _CHUNK), np.uint8)
        while remaining:
            yield zeros[:remaining]
            remaining -= min(remaining, len(zeros))


def read(path: str, low: int, high: int) -> Iterator[Bytes]:
    """Yield bytes [low, high) of a file (uint8); each piece is overwritten by the next."""
    with files.Reader(path) as reader:
        buffer = np.empty(min(_CHUNK, max(1, high - low)), np.uint8)
        for at in range(low, high, len(buffer)):
            piece = buffer[: high - at]
            reader.read_into(at, piece)
            yield piece


class _Taken:
    """What a segment gets: ``used`` of all its bytes, and the digest of each range of new bytes, by the range's number."""

    def __init__(self, position: Position) -> None:
        self._position, self._at, self._range = position, 0, -1
        self.used = UsedDigest()
        self._new: dict[int, Any] = {}

    @property
    def digests(self) -> dict[str, str]:
        """The digests, in hex."""
        return {str(number): hasher.digest().hex() for number, hasher in self._new.items()}

    def begin(self, number: int) -> None:
        """Bytes of the range ``number`` follow; -1: bytes of the old segment."""
        self._range = number
        if number >= 0:
            self._new.setdefault(number, storage_format_digest.new_digest())

    def take(self, data: Bytes) -> int:
        """Take in bytes. Return how many of them there are up to the last one that is not zero."""
        self._at += len(data)
        self._position.moved(self._at)
        if self._range >= 0:
            self._new[self._range].update(data.data)
        return self.used.take(data)


# ------------------------------------------------------------------------------------------------------------------- quarantine
# Keep what lay in a damaged stretch: its bytes in one file, and the records of it that can still be read in another.
#
# quarantine/OFFSET        the bytes, up to the last one that is not zero; OFFSET has 20 digits quarantine/OFFSET.json   offset,
# length, reasons, and the records whose frame is sound

QUARANTINE: Final = "quarantine"
_RECORDS_AT_ONCE: Final = 100
"""records that are listed by one write"""


@dataclass
class KeptBytes(handover.TaskResult):
    """What was kept of the bytes from ``low`` on: their digest ("" where no file has them), entries of the manifest, records
    listed.
    """

    low: int = -1
    digest: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    """records in it whose frame is sound"""


@dataclass(frozen=True)
class KeepReplaced:
    """Keeps the old bytes of a task's share of the replaced stretches; leaves results (``KeptBytes``).

    ``plan`` is the plan of these, each a ``SegmentDamage``, which ``tasks`` tasks share. ``settings`` are those of the scan.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replaced = [repair.SegmentDamage.of_fields(fields) for fields in handover.read_plan(self.plan)]
        walker = Walker(self.settings)
        for task in handover.numbers(batches):
            yield handover.batch([_keep(self.staging, walker, damage) for damage in handover.share(replaced, task, self.tasks)])


def _keep(staging: StagingFolder, walker: Walker, replaced: repair.SegmentDamage) -> KeptBytes:
    """Keep the bytes of the stretch, and list the records in them whose frame is sound."""
    low, high, segment = replaced.offset, replaced.end, replaced.segment
    kept = KeptBytes(low)
    if not segment.path:
        return kept
    name = f"{low:020d}"
    kept.digest, used, of_used = _copy(staging, segment, low, min(high, segment.data_end), f"{QUARANTINE}/{name}")
    if used:
        kept.entries.append({"path": f"{QUARANTINE}/{name}", "size": used, "used": used, "digest": of_used})
    head = {
        "offset": low,
        "length": high - low,
        "damage": [{"offset": p.offset, "length": p.length, "reason": p.reason} for p in replaced.places],
        "bytes": f"{name}" if used else None,
        "records": [],
    }
    path, size, hasher = f"{QUARANTINE}/{name}.json", 0, storage_format_digest.new_digest()
    with (
        files.Reader(segment.path) as reader,
        files.writing(staging.temporary, files.join(staging.tree, path), like=(segment.path,)) as writer,
    ):
        # There may be millions, with long keys: all of them never are in memory.
        for text in _listing(head, _records(reader, walker, segment, low, high), kept):
            writer.append(text)
            hasher.update(text)
            size += len(text)
        writer.finish()
    kept.entries.append({"path": path, "size": size, "used": size, "digest": hasher.digest().hex()})
    return kept


def _listing(head: dict[str, Any], records: Iterator[dict[str, Any]], kept: KeptBytes) -> Iterator[bytes]:
    """Yield the JSON text of a listing, one record a line; ``kept`` learns how many there are."""
    yield json.dumps(head, indent=1).encode()[: -len(b"]\n}")]
    while lines := [json.dumps(record) for record in islice(records, _RECORDS_AT_ONCE)]:
        yield (",\n  " if kept.records else "\n  ").encode() + ",\n  ".join(lines).encode()
        kept.records += len(lines)
    yield b"\n ]\n}\n" if kept.records else b"]\n}\n"


def _copy(staging: StagingFolder, segment: Segment, low: int, high: int, path: str) -> tuple[str, int, str]:
    """Copy bytes up to the last that is not zero. Return the digest of all, how many were copied, and the digest of those."""
    whole, used = storage_format_digest.new_digest(), UsedDigest()
    writer: files.Writer | None = None
    try:
        at = 0
        for piece in read(segment.path, low - segment.start, high - segment.start):
            whole.update(piece.data)
            last = used.take(piece)
            if last:
                writer = writer or files.Writer(staging.temporary, files.join(staging.tree, path), like=(segment.path,))
                writer.write_at(at, piece[:last])
            at += len(piece)
        if writer is not None:
            writer.finish()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    return whole.digest().hex(), *used.finish()


def _records(reader: files.Reader, walker: Walker, segment: Segment, low: int, high: int) -> Iterator[dict[str, Any]]:
    for offset in walker.framed(segment, low, high):
        at = offset - segment.start
        size = reader.size()

        def read(inner: int, count: int, at: int = at, size: int = size) -> bytes:
            return reader.read(at + inner, max(0, min(count, size - at - inner)))

        message = read_message(read, offset, segment.data_end - offset)
        if isinstance(message, Message):
            yield record_entry(message)


def record_entry(message: Message) -> dict[str, Any]:
    """Return what is listed of a record. Its names come from the log: they are escaped."""
    return {
        "offset": message.phy_offset,
        "size": message.size,
        "topic": showing.escape(message.topic),
        "queue": message.queue_id,
        "queue_offset": message.queue_offset,
        "unique_key": showing.escape(message.unique_key) if message.unique_key else None,
        "keys": [showing.escape(key) for key in message.keys],
        "store_time": message.store_time,
    }
