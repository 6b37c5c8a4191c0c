"""What replicas have behind the end of a log: the record that is torn there, and those that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair.damage import RecordAt
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import plans, results
from rocketmq_reindex.udfs.repair.replicas import Replica
from rocketmq_reindex.udfs.repair.walking import Walker, record_bytes
from rocketmq_reindex.udfs.results import Result


class LogEnd(NamedTuple):
    """Where a log ends, in ``segment``: its last good record, and how many bytes of a torn one lie behind it."""

    last: RecordAt
    segment: Segment
    offset: int
    torn: int

    @classmethod
    def of_fields(cls, fields: list[Any]) -> LogEnd:
        """The end with these fields, in which objects are lists (``udfs.plans``)."""
        last = RecordAt.of_fields(fields[0])
        assert last is not None
        return cls(last, Segment(*fields[1]), *fields[2:])


@dataclass
class Behind(Result):
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

    ``end`` is the plan of one ``LogEnd``, ``replicas`` that of the replicas' segments. ``settings`` are those of the scan.
    """

    end: str
    replicas: str
    settings: ScanSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (end,) = [LogEnd.of_fields(fields) for fields in plans.read_plan(self.end)]
        listed = plans.read_plan(self.replicas)
        walker = Walker(replace(self.settings, crc_mode=max(self.settings.crc_mode, r.CRC_BODY)))
        for number in plans.numbers(batches):
            yield results.batch([_look(walker, Replica.of_fields(listed[number]), end, number + 1)])


def _look(walker: Walker, replica: Replica, end: LogEnd, number: int) -> Behind:
    found = Behind(number, stretches=[])
    if not replica.has(end.last):
        torn = _torn_record(walker, replica, end)
        if torn is None:
            return found
        end = torn
    found.begin, found.before = end.offset, end.last.offset
    at, size = end.offset, end.segment.segment_end - end.segment.start
    if end.torn:
        found.torn_end = _torn_end(walker, replica, end)
    while (segment := replica.segments.get(at // size * size)) is not None and segment.segment_end - segment.start == size:
        high = min(segment.data_end, segment.segment_end)
        stop, records = _records_up_to(walker, segment, at, high)
        if stop > at and records:
            assert found.stretches is not None
            found.stretches.append((at, stop))
            found.records += records
        if stop < segment.segment_end or not records:
            break
        at = stop
    return found


def _torn_record(walker: Walker, replica: Replica, end: LogEnd) -> LogEnd | None:
    """The end of the log in front of its last record, where that is torn in its properties, which no CRC covers: from some byte
    on it has zeros, and up to there it is the replica's. None where it is another record.
    """
    last = end.last
    mine = record_bytes(last)
    theirs = replica.read(last, len(mine))
    before = walker.walk(last.segment, last.anchor, last.offset).last_good if 0 <= last.anchor < last.offset else -1
    there = len(mine.rstrip(b"\0"))
    if end.torn or before < 0 or there < r.RECORD_MIN or theirs[:there] != mine[:there]:
        return None
    previous = RecordAt(last.segment, before)
    return LogEnd(previous, last.segment, last.offset, len(mine)) if replica.has(previous) else None


def _torn_end(walker: Walker, replica: Replica, end: LogEnd) -> int:
    """Where the replica's records end that begin in the torn bytes; -1 where they are not whole."""
    segment = replica.segments.get(end.segment.start)
    if segment is None or segment.segment_end != end.segment.segment_end or segment.data_end < end.offset + end.torn:
        return -1
    found = walker.walk(segment, end.offset, end.offset + end.torn)
    return found.end if not found.holes and found.records and end.offset < found.end <= segment.data_end else -1


def _records_up_to(walker: Walker, segment: Segment, low: int, high: int) -> tuple[int, int]:
    """Where the good records of a segment end that follow each other from ``low`` on, and how many there are."""
    if low >= high:
        return low, 0
    found = walker.walk(segment, low, high)
    if found.holes:
        high = found.holes[0][0]
        return _records_up_to(walker, segment, low, high) if high > low else (low, 0)
    return (found.end if found.end >= 0 else max(found.tail, low)), found.records
