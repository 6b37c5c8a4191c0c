"""Write the segments of a repaired log: copies of those of the damaged one, with other bytes where it was damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.repair.pieces import COPY, Piece, covered
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import files, plans, results
from rocketmq_reindex.udfs.files.digests import UsedDigest
from rocketmq_reindex.udfs.progress import Position
from rocketmq_reindex.udfs.repair.links import HARD, NONE, REFLINK
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder

FOLDER: Final = "commitlog"
_CHUNK: Final = 16 << 20
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SegmentPlan:
    """One segment to be written: as it is in the damaged log, where the path of a missing one is "".

    ``pieces`` are the bytes that change, in order. ``link``, one of LINKS, says how an unchanged segment may share its bytes
    with the old file.
    """

    old: Segment
    link: str
    pieces: list[Piece] = field(default_factory=list)

    @classmethod
    def of_fields(cls, fields: list[Any]) -> SegmentPlan:
        """The plan with these fields, as ``udfs.plans`` writes them."""
        found = cls(*fields)
        return replace(found, old=Segment(*fields[0]), pieces=[Piece(*piece) for piece in found.pieces])  # type: ignore[misc]  # JSON has lists


@dataclass
class WrittenSegment(Result):
    """A segment that was written: its entry of the manifest, how it came there, and the digest of each range of new bytes."""

    entry: dict[str, Any]
    how: str
    """copy, or one of LINKS"""
    digests: dict[str, str]
    """by the number of the range"""


@dataclass(frozen=True)
class WriteSegments:
    """Writes a task's share of the segments into the staging tree; leaves results (``WrittenSegment``)."""

    staging: StagingFolder
    plan: str
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned = [SegmentPlan.of_fields(fields) for fields in plans.read_plan(self.plan)]
        for task in plans.numbers(batches):
            for plan in plans.share(planned, task, self.tasks):
                yield results.batch([self._write(plan)])

    def _write(self, plan: SegmentPlan) -> WrittenSegment:
        old, relative = plan.old, f"{FOLDER}/{plan.old.name}"
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
        """How an unchanged whole segment came to share its bytes with the old file; "" where it does not."""
        if plan.pieces or plan.link == NONE or plan.old.data_end != plan.old.segment_end:
            return ""
        if plan.link == HARD and files.link(plan.old.path, target):
            return HARD
        return REFLINK if files.clone(plan.old.path, self.staging.temporary, target) else ""

    def _make(self, plan: SegmentPlan, target: str, size: int, taken: _Taken) -> None:
        old, start = plan.old, plan.old.start
        end = max([old.data_end if old.path else start, *(piece.high for piece in plan.pieces)])
        like = {path for path in (old.path, *(piece.path for piece in plan.pieces if piece.kind == COPY)) if path}
        with files.writing(self.staging.temporary, target, like=like) as writer:
            for piece in covered(plan.pieces, start, end, old.path, start):
                taken.begin(piece.range)
                at = piece.low - start
                for data in self._bytes(piece):
                    # Zeros stay a hole, where the file system has holes.
                    if taken.take(data):
                        writer.write_at(at, data)
                    at += len(data)
            writer.finish(size)

    @staticmethod
    def _bytes(piece: Piece) -> Iterator[Bytes]:
        if piece.kind == COPY:
            yield from read(piece.path, piece.low - piece.start, piece.high - piece.start)
            return
        left = piece.size
        for data in piece.made():
            left -= len(data)
            yield np.frombuffer(data, np.uint8)
        zeros = np.zeros(min(left, _CHUNK), np.uint8)
        while left:
            yield zeros[:left]
            left -= min(left, len(zeros))


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
            self._new.setdefault(number, new_digest())

    def take(self, data: Bytes) -> int:
        """Take in bytes; returns how many of them there are up to the last one that is not zero."""
        self._at += len(data)
        self._position.moved(self._at)
        if self._range >= 0:
            self._new[self._range].update(data.data)
        return self.used.take(data)
