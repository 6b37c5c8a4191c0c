"""Count what a broker does not look at itself: records below the recovery's start, and good ones behind a cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import TOTAL, Stretch, check_record, find_record, new_record
from rocketmq_reindex.storage_format.start.broker_record import Reading
from rocketmq_reindex.storage_format.start.kept import Int64s
from rocketmq_reindex.storage_format.start.log_reader import LogReader
from rocketmq_reindex.storage_format.start.record_loop import Rows
from rocketmq_reindex.storage_format.start.store import StoreFile

_CHUNK: Final = 1 << 20


def read_sound(stretches: Sequence[tuple[StoreFile, int, int]], reading: Reading, reader: LogReader) -> None:
    """Read into ``reader`` the sound records of stretches (segment, first byte, end), damage between them passed over."""
    record = new_record()
    for segment, first, end in stretches:
        at = first
        while at < end:
            code, at = reader.read(segment, at, end, reading)
            if code == r.FILLER:
                break
            # A damaged record whose length holds is passed as a whole: its body may have records in it.
            stretch = Stretch(segment.data, end, segment.start, segment.start + segment.size, segment.start + end)
            code = check_record(stretch, at, reading.crc, record)
            if code == r.GOOD or code >= r.FIRST_FRAMED:
                at += int(record.rec[TOTAL])
                continue
            code, at = find_record(stretch, at + 1, end, reading.crc, record)
            if code != r.GOOD:
                break


def last_byte(segments: Sequence[StoreFile], first: int, at: int) -> int:
    """The offset behind the last byte that is not zero, from byte ``at`` of segment ``first`` on; -1 where all are zero."""
    for number in range(len(segments) - 1, first - 1, -1):
        data, low = segments[number].data, at if number == first else 0
        high = len(data)
        while high > low:
            start = max(low, high - _CHUNK)
            used = np.flatnonzero(data[start:high])
            segments[number].let_go(start, high)
            if len(used):
                return segments[number].start + start + int(used[-1]) + 1
            high = start
    return -1


def by_queue(rows: Rows, mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Int64s]]:
    """The queues of the rows of ``mask``, each with the numbers of its rows in their order."""
    numbers = np.flatnonzero(mask)
    queues = rows.queue[numbers]
    order = np.argsort(queues, kind="stable")
    numbers, queues = numbers[order], queues[order]
    starts = np.flatnonzero(np.concatenate([[True], queues[1:] != queues[:-1]])) if len(queues) else np.zeros(0, np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(queues)], strict=False):
        yield int(queues[start]), numbers[start:end]
