"""Look up in replicas and backups a damaged stretch, and what lies behind the end of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair import RecordAt, SegmentDamage
from rocketmq_reindex.storage_format.scan import range_scan, ranges, settings as scan_settings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.scan.ranges import SegmentReader

# ---------------------------------------------------------------------------------------------------------------------- walking
# Walk the records of a stretch of a segment, to know its last one, whether it is whole, and what lies in damage.

_CHUNK: Final = 8 << 20
_ROWS: Final = 1 << 16


class Walker:
    """Walks stretches one after another, as the scan with ``settings`` does."""

    def __init__(self, settings: scan_settings.ScanSettings) -> None:
        plain = replace(
            settings, want_units=False, want_items=False, want_topics=False, want_messages=False, want_digests=False,
            chunk=min(_CHUNK, settings.chunk), block_rows=_ROWS,
        )  # fmt: skip
        self._records = range_scan.RangeScanner(plain)
        broken = replace(plain, crc_mode=r.CRC_NONE, search_crc=r.CRC_NONE, want_messages=True)
        self._broken = range_scan.RangeScanner(broken)

    def walk(self, segment: ranges.Segment, low: int, high: int) -> ranges.RangeSummary:
        """Return the summary of the records that start in [low, high), the first one at ``low``."""
        for _ in _blocks(self._records, segment, low, high):
            pass
        return self._records.summary

    def framed(self, segment: ranges.Segment, low: int, high: int) -> Iterator[int]:
        """Yield the offsets of records in [low, high) whose frame is sound, whatever their CRC says.

        Those that no queue can have, by their topic's name, are left out.
        """
        high = min(high, segment.data_end)
        if low < high:
            for block in _blocks(self._broken, segment, low, high):
                yield from block.messages.phy_offset.tolist()


def _blocks(scanner: range_scan.RangeScanner, segment: ranges.Segment, low: int, high: int) -> Iterator[scan_settings.Block]:
    spec = segment.part(0, low, high, known=True)
    with SegmentReader(segment.path, segment.start) as reader:
        yield from scanner.scan(spec, reader.read, reader.view)


def is_completed(segment: ranges.Segment, offset: int) -> bool:
    """Return whether the record at ``offset``, in which a short file ends, has a sound frame as soon as zeros follow on the
    file."""
    with files.Reader(segment.path) as reader:

        def padded(low: int, count: int) -> bytes:
            at = offset + low
            return reader.read(at - segment.start, max(0, min(count, segment.data_end - at))).ljust(count, b"\0")

        return isinstance(read_message(padded, offset, segment.segment_end - offset), Message)


def record_bytes(place: RecordAt) -> bytes:
    """Return the bytes of a good record, from its file. Raises OSError and InputError."""
    with files.Reader(place.segment.path) as reader:
        at = place.offset - place.segment.start
        size = int.from_bytes(reader.read(at, 4), "big", signed=True)
        return reader.read(at, max(0, min(size, place.segment.data_end - place.offset)))


def message_of(data: bytes, offset: int) -> Message | None:
    """Return the record of the absolute ``offset`` that ``data`` begins with, if it has its frame."""
    message = read_message(lambda at, count: data[at : at + count], offset, len(data))
    return message if isinstance(message, Message) else None


# --------------------------------------------------------------------------------------------------------------------- replicas
# Take a damaged stretch from a replica or a backup, where it is certain that both logs are the same there.
#
# Master and slave hold the same bytes at the same offsets (``HAService``). A stretch is taken only if the replica's records
# chain from its first byte to its last, with right positions and CRCs, and if the good records on both sides are equal in both
# logs.


@dataclass(frozen=True)
class Replica:
    """The segments of a replica, by their first offset."""

    segments: dict[int, ranges.Segment]

    @classmethod
    def of_fields(cls, listed: Sequence[Sequence[object]]) -> Replica:
        """Return the replica with these segments, as lists of fields."""
        segments = [ranges.Segment(*fields) for fields in listed]  # type: ignore[arg-type]  # JSON has no types
        return cls({segment.start: segment for segment in segments})

    def chains(self, walker: Walker, damage: SegmentDamage, low: int, high: int) -> ranges.Segment | None:
        """Return the replica's segment, if its records chain from ``low`` to ``high`` exactly; None else.

        Where nothing follows in the damaged log, both logs may end in the segment: then zeros follow on the last record.
        """
        segment = self.segments.get(damage.segment.start)
        if segment is None or segment.segment_end != damage.segment.segment_end or segment.data_end < high:
            return None
        try:
            walked = walker.walk(segment, low, high)
        except InputError:
            # One that has become shorter gives nothing. One that cannot be read ends the run: it may have the right bytes.
            return None
        whole = high == segment.segment_end
        ends = walked.end == high or (whole and walked.end == segment.segment_end)
        runs_out = whole and damage.ends_log and walked.tail >= 0 and walked.last_nonzero < 0
        return segment if not walked.holes and (runs_out or (ends and walked.tail < 0)) else None

    def has(self, border: RecordAt) -> bool:
        """Return whether the replica has the same bytes where the good record ``border`` lies in the damaged log."""
        data = record_bytes(border)
        return self.read(border, len(data)) == data

    def is_alike(self, border: RecordAt) -> bool:
        """Return whether the replica has a record of the same size and body there: the same message, but for other fields."""
        data = record_bytes(border)
        replica_data = self.read(border, len(data))
        message, replica_message = message_of(data, border.offset), message_of(replica_data, border.offset)
        if message is None or replica_message is None or message.size != replica_message.size:
            return False
        bodies = [
            bytes_of[record.body_at : record.body_at + record.body_size]
            for record, bytes_of in ((message, data), (replica_message, replica_data))
        ]
        return bodies[0] == bodies[1]

    def is_sound(self, walker: Walker, border: RecordAt) -> bool:
        """Return whether the replica has any good record where ``border`` begins in the damaged log."""
        segment = self.segments.get(border.segment.start)
        if segment is None or border.offset >= segment.data_end:
            return False
        try:
            return walker.walk(segment, border.offset, border.offset + 1).last_good == border.offset
        except InputError:
            return False

    def read(self, place: RecordAt, size: int) -> bytes:
        """Return ``size`` bytes from where the record ``place`` begins in the damaged log; nothing where the replica has
        fewer."""
        segment = self.segments.get(place.segment.start)
        if segment is None or place.offset + size > segment.data_end:
            return b""
        try:
            with files.Reader(segment.path) as reader:
                return reader.read(place.offset - segment.start, size)
        except InputError:
            return b""


# --------------------------------------------------------------------------------------------------------- behind the log's end
# What replicas have behind the end of a log: the record that is torn there, and those that follow.


class ReplicaEnd(NamedTuple):
    """Where a log ends, in ``segment``: its last good record, and how many bytes of a torn one lie behind it."""

    last: RecordAt
    segment: ranges.Segment
    offset: int
    torn: int

    @classmethod
    def of_fields(cls, fields: list[Any]) -> ReplicaEnd:
        """Return the end with these fields, in which objects are lists (``udfs.handover``)."""
        last = RecordAt.of_fields(fields[0])
        assert last is not None
        return cls(last, ranges.Segment(*fields[1]), *fields[2:])


@dataclass
class Behind(handover.TaskResult):
    """What the replica ``replica`` (from 1) has behind the end of the log; nothing where its record before that is another.

    ``stretches`` are [low, high) of the log, one for each segment, up to the end of the last record.
    """

    replica: int
    begin: int = -1
    """where what differs begins: at the log's end, or with its last record, where that is torn and no CRC shows it"""
    before: int = -1
    """the record in front of that, which is the same in both"""
    torn_end: int = -1
    """where the records end that have the torn bytes; -1 where they are not whole in the replica"""
    records: int = 0
    stretches: list[tuple[int, int]] | None = None

    @property
    def end(self) -> int:
        """Where its records end; -1 where there are none."""
        return self.stretches[-1][1] if self.stretches else -1

    @property
    def bytes(self) -> int:
        """Bytes of all stretches."""
        return sum(high - low for low, high in self.stretches or ())


@dataclass(frozen=True)
class LookBehind:
    """Looks into the replicas whose numbers a task gets (from 0); leaves results (``Behind``).

    ``end`` is the plan of one ``ReplicaEnd``, ``replicas`` that of the replicas' segments. ``settings`` are those of the scan.
    """

    end: str
    replicas: str
    settings: scan_settings.ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (end,) = [ReplicaEnd.of_fields(fields) for fields in handover.read_plan(self.end)]
        listed = handover.read_plan(self.replicas)
        walker = Walker(replace(self.settings, crc_mode=max(self.settings.crc_mode, r.CRC_BODY)))
        for number in handover.numbers(batches):
            yield handover.batch([_look(walker, Replica.of_fields(listed[number]), end, number + 1)])


def _look(walker: Walker, replica: Replica, end: ReplicaEnd, number: int) -> Behind:
    behind = Behind(number, stretches=[])
    if not replica.has(end.last):
        torn = _torn_record(walker, replica, end)
        if torn is None:
            return behind
        end = torn
    behind.begin, behind.before = end.offset, end.last.offset
    at, size = end.offset, end.segment.segment_end - end.segment.start
    if end.torn:
        behind.torn_end = _torn_end(walker, replica, end)
    while (segment := replica.segments.get(at // size * size)) is not None and segment.segment_end - segment.start == size:
        high = min(segment.data_end, segment.segment_end)
        stop, records = _records_up_to(walker, segment, at, high)
        if stop > at and records:
            assert behind.stretches is not None
            behind.stretches.append((at, stop))
            behind.records += records
        if stop < segment.segment_end or not records:
            break
        at = stop
    return behind


def _torn_record(walker: Walker, replica: Replica, end: ReplicaEnd) -> ReplicaEnd | None:
    """Return the end of the log in front of its last record, where that is torn in its properties, which no CRC covers: from
    some byte on it has zeros, and up to there it is the replica's. None where it is another record."""
    last = end.last
    data = record_bytes(last)
    replica_data = replica.read(last, len(data))
    before = walker.walk(last.segment, last.anchor, last.offset).last_good if 0 <= last.anchor < last.offset else -1
    kept_size = len(data.rstrip(b"\0"))
    if end.torn or before < 0 or kept_size < r.RECORD_MIN or replica_data[:kept_size] != data[:kept_size]:
        return None
    previous = RecordAt(last.segment, before)
    return ReplicaEnd(previous, last.segment, last.offset, len(data)) if replica.has(previous) else None


def _torn_end(walker: Walker, replica: Replica, end: ReplicaEnd) -> int:
    """Return where the replica's records end that begin in the torn bytes; -1 where they are not whole."""
    segment = replica.segments.get(end.segment.start)
    if segment is None or segment.segment_end != end.segment.segment_end or segment.data_end < end.offset + end.torn:
        return -1
    walked = walker.walk(segment, end.offset, end.offset + end.torn)
    return walked.end if not walked.holes and walked.records and end.offset < walked.end <= segment.data_end else -1


def _records_up_to(walker: Walker, segment: ranges.Segment, low: int, high: int) -> tuple[int, int]:
    """Return where the good records of a segment end that follow each other from ``low`` on, and how many there are."""
    if low >= high:
        return low, 0
    walked = walker.walk(segment, low, high)
    if walked.holes:
        high = walked.holes[0][0]
        return _records_up_to(walker, segment, low, high) if high > low else (low, 0)
    return (walked.end if walked.end >= 0 else max(walked.tail, low)), walked.records
