"""What a broker dispatches once its store is recovered (``ReputMessageService``): 4.9, and 5.x with a recheck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.start.broker_record import BAD_SUM, Reading
from rocketmq_reindex.storage_format.start.log_reader import LogReader
from rocketmq_reindex.storage_format.start.queue_state import LoadFailure
from rocketmq_reindex.storage_format.start.recovery import read_segment
from rocketmq_reindex.storage_format.start.store import StoreFile


@dataclass(frozen=True)
class KeptLog:
    """The segments that the recovery leaves; ``ends[k]`` is how many bytes of segment k are in use."""

    segments: Sequence[StoreFile]
    ends: Sequence[int]
    segment_size: int

    @property
    def min_offset(self) -> int:
        """``CommitLog.getMinOffset``; -1 for an empty log."""
        return self.segments[0].start if self.segments else -1

    @property
    def max_offset(self) -> int:
        """``CommitLog.getMaxOffset``."""
        return self.segments[-1].start + self.ends[-1] if self.segments else 0

    def find(self, offset: int) -> int | None:
        """The number of the segment that holds an offset (``MappedFileQueue.findMappedFileByOffset``)."""
        for number, segment in enumerate(self.segments):
            if segment.start <= offset < segment.start + self.segment_size:
                return number
        return None


def reput(log: KeptLog, start: int, reading: Reading, reader: LogReader) -> None:
    """Read into ``reader`` what ``doReput`` dispatches from ``start`` to the log's end, damage passed over as it does.

    Raises LoadFailure where it never gets there: then ``DefaultMessageStore.start`` does not end.
    """
    at = max(start, log.min_offset)
    while at < log.max_offset:
        number = log.find(at)
        if number is None or at % log.segment_size >= log.ends[number]:
            raise LoadFailure("dispatch-stuck", f"the broker waits for ever to dispatch the log from offset {at} on")
        at = _through(log, number, at, reading, reader)


def _through(log: KeptLog, number: int, at: int, reading: Reading, reader: LogReader) -> int:
    """One segment of the log; returns where it goes on."""
    segment, end = log.segments[number], log.ends[number]
    first = position = at % log.segment_size
    done = 0
    while done < end - first:
        code, stop = read_segment(segment, position, end, reading, reader)
        done += stop - position
        at += stop - position
        if done >= end - first:
            break
        if code == r.FILLER:
            return at + log.segment_size - at % log.segment_size
        if code != BAD_SUM:
            return at + (end - first) - done
        # The size is taken, but what was read is behind the sum of the parts.
        at += reader.refused_size(segment.data, stop)
        position = stop + reader.refused_read
    return at
