"""Evidence of delayed messages out of single records, or a stretch of the log, of a store whose files are mapped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, Bytes, Int64s, Rows, read_evidence
from rocketmq_reindex.storage_format.delay.wheel import LogFile
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import STORE_TIME, TOTAL, RecordArrays, Stretch, check_record, new_record
from rocketmq_reindex.storage_format.walk.state import MessageArrays

_ROWS: Final = 1 << 16


@jit
def _sound(stretch: Stretch, offsets: Int64s, sizes: Int64s, out: npt.NDArray[np.bool_], record: RecordArrays) -> None:
    for n in range(len(offsets)):
        code = check_record(stretch, offsets[n] - stretch.base, r.CRC_NONE, record)
        out[n] = code == r.GOOD and record.rec[TOTAL] == sizes[n]


@jit
def _walk(
    stretch: Stretch, at: int, since: int, offsets: Int64s, sizes: Int64s, record: RecordArrays
) -> tuple[int, int]:  # fmt: skip
    """Places and sizes of the records from ``data[at]`` on that were stored at ``since`` or later.

    Returns where to go on, -1 at the end, and how many there are.
    """
    count, rec = 0, record.rec
    while at < stretch.filled:
        code = check_record(stretch, at, r.CRC_NONE, record)
        if code != r.GOOD:
            return -1, count
        if rec[STORE_TIME] >= since:
            if count == len(offsets):
                return at, count
            offsets[count], sizes[count] = stretch.base + at, rec[TOTAL]
            count += 1
        at += rec[TOTAL]
    return -1, count


def rows_at(segments: Sequence[LogFile], offsets: Int64s, sizes: Int64s) -> Rows:
    """Rows of EVIDENCE of the records at ``offsets``, ascending; what is no sound record of its size there has none."""
    parts = [np.zeros(0, EVIDENCE)]
    for segment in segments:
        low, high = np.searchsorted(offsets, (segment.start, segment.start + segment.size))
        for begin in range(int(low), int(high), _ROWS):
            mine = slice(begin, min(begin + _ROWS, int(high)))
            data, sound = segment.data, np.zeros(mine.stop - mine.start, np.bool_)
            _sound(_stretch(segment), offsets[mine], sizes[mine], sound, new_record())
            parts.append(_rows(data, segment.start, offsets[mine][sound], sizes[mine][sound]))
    return np.concatenate(parts)


def rows_since(segments: Sequence[LogFile], low: int, high: int, since: int) -> Iterator[Rows]:
    """Rows of EVIDENCE of the records at offsets ``low`` to ``high``, without it, that were stored at ``since`` or later.

    ``since`` is in milliseconds. A segment is read up to its first damage.
    """
    offsets, sizes = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
    for segment in segments:
        at, limit = max(0, low - segment.start), min(segment.size, high - segment.start)
        while 0 <= at < limit:
            at, count = _walk(_stretch(segment)._replace(filled=limit), at, since, offsets, sizes, new_record())
            yield _rows(segment.data, segment.start, offsets[:count], sizes[:count])


def begin_of(segments: Sequence[LogFile], since: int) -> int:
    """The offset of a segment from which on all records lie that were stored at ``since`` or later, in milliseconds."""
    return segments[max(0, bisect_left(segments, since, key=_first_time) - 1)].start if segments else 0


def _first_time(segment: LogFile) -> int:
    """When the first record of a segment was stored; 0 where none stands there."""
    record = new_record()
    first = np.array([segment.start], np.int64)
    _sound(_stretch(segment), first, np.zeros(1, np.int64), np.zeros(1, np.bool_), record)
    return int(record.rec[STORE_TIME])


def _rows(data: Bytes, base: int, offsets: Int64s, sizes: Int64s) -> Rows:
    unknown, messages = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int32)
    return read_evidence(data, base, MessageArrays(offsets, sizes.astype(np.int32), unknown, unknown, messages))


def _stretch(segment: LogFile) -> Stretch:
    end = segment.start + len(segment.data)
    return Stretch(segment.data, len(segment.data), segment.start, end, end)
