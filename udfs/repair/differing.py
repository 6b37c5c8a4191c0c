"""Compare the bytes of two logs, and name the records in which they differ: where no CRC covers a byte, nothing else tells."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.repair.replicas import Walker, message_of
from rocketmq_reindex.udfs.staging import Position, StagingFolder

CHUNK: Final = 8 << 20
"""Bytes that are compared at once."""
PIECE: Final = 256 << 20
"""Bytes of the longest stretch."""
RECORDS_MAX: Final = 1000
"""Records that are named of each stretch."""
_BESIDE: Final = ("phy_offset", "size", "version", "body_at", "body_size", "properties")
"""Fields of ``Message`` that are compared otherwise."""


@dataclass(frozen=True)
class CommonBytes:
    """The same bytes of two logs: ``length`` from phy_offset ``low`` on, at byte ``a_at`` of ``a`` and ``b_at`` of ``b``."""

    low: int
    length: int
    a: str
    a_at: int
    b: str
    b_at: int


class DifferingRecord(NamedTuple):
    """A record that log B has otherwise than A; ``fields`` says in what, and ``first`` is the first byte that differs."""

    first: int
    bytes: int
    """how many bytes differ"""
    phy_offset: int
    size: int
    topic: str
    """escaped"""
    queue: int
    queue_offset: int
    fields: str
    digest: str
    """of the record in B; "" where B has no record of this size there"""

    @property
    def text(self) -> str:
        """The record as people read it."""
        return f"offset {self.phy_offset}: record of {self.topic}/{self.queue}, queue offset {self.queue_offset}: {self.fields}"


@dataclass
class LogDifference(handover.TaskResult):
    """A stretch of the log that differs."""

    first: int
    """phy_offset of the first byte that differs"""
    bytes: int
    """how many bytes differ"""
    a: bool
    b: bool
    """whether A, or B, has there anything but zeros"""
    records: list[DifferingRecord] = field(default_factory=list)
    """the first RECORDS_MAX records of A in which bytes differ"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> LogDifference:
        """Return the difference with these fields, in which records are lists."""
        fields["records"] = [DifferingRecord(*record) for record in fields["records"]]
        return cls(**fields)


def overlap(a: Sequence[Segment], b: Sequence[Segment]) -> list[CommonBytes]:
    """Return the offsets that both logs have, in pieces that lie in one file each."""
    parts, ends = list[CommonBytes](), [segment.data_end for segment in b]
    for segment_a in a:
        for segment_b in b[bisect_right(ends, segment_a.start) :]:
            if segment_b.start >= segment_a.data_end:
                break
            low, high = max(segment_a.start, segment_b.start), min(segment_a.data_end, segment_b.data_end)
            for at in range(low, high, PIECE):
                length = min(PIECE, high - at)
                parts.append(
                    CommonBytes(at, length, segment_a.path, at - segment_a.start, segment_b.path, at - segment_b.start)
                )
    return parts


@dataclass(frozen=True)
class CompareLogs:
    """Compares a task's share of the stretches; leaves a ``LogDifference`` for each that differs.

    ``plan`` is the plan of ``CommonBytes`` that ``tasks`` tasks share, ``settings`` are those of a scan of log A.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stretches = [CommonBytes(*fields) for fields in handover.read_plan(self.plan)]
        walker = Walker(self.settings)
        for task in handover.numbers(batches):
            share = handover.share(stretches, task, self.tasks)
            position, bytes_done = Position(self.staging, f"log-{task}", sum(stretch.length for stretch in share)), 0
            differences = list[LogDifference]()
            for stretch in share:
                difference = _compared(walker, stretch)
                differences += [difference] if difference else []
                bytes_done += stretch.length
                position.moved(bytes_done)
            position.ended(bytes_done)
            yield handover.batch(differences)


def _compared(walker: Walker, stretch: CommonBytes) -> LogDifference | None:
    first, count, filled = -1, 0, [False, False]
    starts: npt.NDArray[np.int64] | None = None
    hit: dict[int, list[int]] = {}
    a, b = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.uint8)
    with files.Reader(stretch.a) as reader_a, files.Reader(stretch.b) as reader_b:
        for at in range(0, stretch.length, CHUNK):
            size = min(CHUNK, stretch.length - at)
            reader_a.read_into(stretch.a_at + at, a[:size])
            reader_b.read_into(stretch.b_at + at, b[:size])
            differ = np.flatnonzero(a[:size] != b[:size])
            if not len(differ):
                continue
            first = stretch.low + at + int(differ[0]) if first < 0 else first
            count += len(differ)
            filled = [filled[0] or bool(a[differ].any()), filled[1] or bool(b[differ].any())]
            if starts is None:
                starts = _starts(walker, stretch)
            if len(starts) and len(hit) < RECORDS_MAX:
                places = differ + stretch.low + at
                owners = np.searchsorted(starts, places, side="right") - 1
                owner, low, counts = np.unique(owners[owners >= 0], return_index=True, return_counts=True)
                places = places[owners >= 0]
                for k, index, bytes_ in zip(owner.tolist(), low.tolist(), counts.tolist(), strict=True):
                    before = hit.setdefault(int(starts[k]), [int(places[index]), 0])
                    before[1] += bytes_
        if not count:
            return None
        records = [_record(reader_a, reader_b, stretch, at, *hit[at]) for at in sorted(hit)[:RECORDS_MAX]]
    return LogDifference(first, count, filled[0], filled[1], [record for record in records if record])


def _starts(walker: Walker, stretch: CommonBytes) -> npt.NDArray[np.int64]:
    """Return where the records of A begin in the stretch, and the one that reaches into it (int64, ascending)."""
    start = stretch.low - stretch.a_at
    end = stretch.low + stretch.length
    with files.Reader(stretch.a) as reader:
        segment = Segment("", stretch.a, start, start + reader.size(), start + reader.size())
    starts = np.array(list(walker.framed(segment, start, end)), np.int64)
    return starts[max(0, int(np.searchsorted(starts, stretch.low, side="right")) - 1) :]


def _record(
    a: files.Reader, b: files.Reader, stretch: CommonBytes, at: int, first: int, differing: int
) -> DifferingRecord | None:  # fmt: skip
    """Return the record of A at phy_offset ``at``, if the byte ``first``, which differs, lies in it."""
    record_a = _read(a, stretch.low - stretch.a_at, at)
    record_b = _read(b, stretch.low - stretch.b_at, at)
    if record_a is None or first >= at + record_a[0].size:
        return None
    message, data = record_a
    if record_b is None or record_b[0].size != message.size:
        what_differs, digest = "no such record", ""
    else:
        what_differs, digest = ", ".join(_fields(message, data, *record_b)) or "bytes", new_digest([record_b[1]]).digest().hex()
    return DifferingRecord(
        first, differing, at, message.size, escape(message.topic), message.queue_id, message.queue_offset, what_differs, digest
    )


def _read(reader: files.Reader, start: int, offset: int) -> tuple[Message, bytes] | None:
    """Return the record at phy_offset ``offset`` of a file that begins at ``start``, and its bytes; None where there is
    none."""
    at, end = offset - start, reader.size()
    if not 0 <= at < end:
        return None
    size = int.from_bytes(reader.read(at, min(4, end - at)), "big", signed=True)
    data = reader.read(at, max(0, min(size, end - at)))
    message = message_of(data, offset)
    return (message, data) if message else None


def _fields(message: Message, data: bytes, other: Message, other_data: bytes) -> Iterator[str]:
    """Yield the names of what differs: fields, properties, the body."""
    fields, other_fields = vars(message), vars(other)
    yield from (name for name in fields if name not in _BESIDE and fields[name] != other_fields[name])
    names = [*message.properties, *(name for name in other.properties if name not in message.properties)]
    for name in names:
        if message.properties.get(name) != other.properties.get(name):
            yield f"property {escape(name, 40)}"
    bodies = [
        bytes_of[record.body_at : record.body_at + record.body_size]
        for record, bytes_of in ((message, data), (other, other_data))
    ]
    if bodies[0] != bodies[1]:
        yield "body"
