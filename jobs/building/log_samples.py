"""Stretches of the log that a build was made from, with their digests: by them ``fetch`` knows the log again.

Names of segments prove nothing: those of all brokers are multiples of one size. So the manifest has pages of 4 KiB: the first
page of segments all over the log, and pages of the segment in which the log ends. The last one ends with the last record.
A log that has grown since still has them all, and one whose first segments have expired still has the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import digest_of

PAGE: Final = 4096
_SEGMENTS: Final = 32
_LAST_PAGES: Final = 16
_THREADS: Final = 8
"""a request to a bucket takes as long for a page as for a byte"""


def log_samples(segments: Sequence[Segment], accepted: Sequence[RangeSummary]) -> dict[str, Any]:
    """Return the manifest's ``log``: ``end``, the offset behind the last record, and ``samples`` of what lies before it.

    A sample is {"offset", "length", "digest"}: an absolute offset, bytes, and their digest. ``accepted`` are the ranges that a
    build uses. Raises OSError and InputError where the log cannot be read.
    """
    last = max((summary.last_good for summary in accepted), default=-1)
    number = next((k for k, segment in enumerate(segments) if segment.start <= last < segment.data_end), -1)
    if number < 0:
        return {"end": 0, "samples": []}
    holder = segments[number]
    end = _end_of(holder, last)
    spans = [(segments[k], segments[k].start) for k in spread(number, _SEGMENTS)]
    reach = max(holder.start, end - PAGE)
    spans += [(holder, holder.start + (reach - holder.start) * k // _LAST_PAGES) for k in range(_LAST_PAGES + 1)]
    wanted = {low: (segment, min(low + PAGE, end, segment.data_end)) for segment, low in spans}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="samples") as pool:
        samples = list(pool.map(lambda low: _sample(*wanted[low], low), sorted(wanted)))
    return {"end": end, "samples": samples}


def spread(last: int, most: int) -> list[int]:
    """Return at most ``most`` numbers from 0 to ``last``, both among them, evenly spread."""
    return sorted({last * k // (most - 1) for k in range(most)})


def _end_of(segment: Segment, record: int) -> int:
    """Return the offset behind the good record that begins at the offset ``record``."""
    with files.Reader(segment.path) as reader:
        size = int.from_bytes(reader.read(record - segment.start, 4), "big", signed=True)
    return min(record + max(size, r.HEADER_SIZE), segment.data_end)


def _sample(segment: Segment, high: int, low: int) -> dict[str, Any]:
    with files.Reader(segment.path) as reader:
        return {"offset": low, "length": high - low, "digest": digest_of(reader, segment.start, low, high)}
