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
from rocketmq_reindex.storage_format.record.frame import REC_SIZE, SPANS_SIZE, STORE_TIME, TOTAL, check_record
from rocketmq_reindex.storage_format.walk.state import MessageArrays

_ROWS: Final = 1 << 16


@jit
def _sound(
    data: Bytes, base: int, offsets: Int64s, sizes: Int64s, out: npt.NDArray[np.bool_], rec: Int64s, spans: Int64s
) -> None:
    end = base + len(data)
    for n in range(len(offsets)):
        at = offsets[n] - base
        found = check_record(data, len(data), base, at, end, end, r.CRC_NONE, rec, spans)
        out[n] = found == r.GOOD and rec[TOTAL] == sizes[n]


@jit
def _walk(
    data: Bytes, base: int, at: int, limit: int, since: int, offsets: Int64s, sizes: Int64s, rec: Int64s, spans: Int64s
) -> tuple[int, int]:
    """Places and sizes of the records in ``data[at:limit]`` that were stored at ``since`` or later.

    Returns where to go on, -1 at the end, and how many there are.
    """
    count = 0
    while at < limit:
        found = check_record(data, limit, base, at, base + len(data), base + len(data), r.CRC_NONE, rec, spans)
        if found != r.GOOD:
            return -1, count
        if rec[STORE_TIME] >= since:
            if count == len(offsets):
                return at, count
            offsets[count], sizes[count] = base + at, rec[TOTAL]
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
            _sound(data, segment.start, offsets[mine], sizes[mine], sound, *_scratch())
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
            data = segment.data
            at, count = _walk(data, segment.start, at, limit, since, offsets, sizes, *_scratch())
            yield _rows(data, segment.start, offsets[:count], sizes[:count])


def begin_of(segments: Sequence[LogFile], since: int) -> int:
    """The offset of a segment from which on all records lie that were stored at ``since`` or later, in milliseconds."""
    return segments[max(0, bisect_left(segments, since, key=_first_time) - 1)].start if segments else 0


def _first_time(segment: LogFile) -> int:
    """When the first record of a segment was stored; 0 where none stands there."""
    rec, spans = _scratch()
    first = np.array([segment.start], np.int64)
    _sound(segment.data, segment.start, first, np.zeros(1, np.int64), np.zeros(1, np.bool_), rec, spans)
    return int(rec[STORE_TIME])


def _rows(data: Bytes, base: int, offsets: Int64s, sizes: Int64s) -> Rows:
    none, some = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int32)
    return read_evidence(data, base, MessageArrays(offsets, sizes.astype(np.int32), none, none, some))


def _scratch() -> tuple[Int64s, Int64s]:
    return np.zeros(REC_SIZE, np.int64), np.zeros(SPANS_SIZE, np.int64)
