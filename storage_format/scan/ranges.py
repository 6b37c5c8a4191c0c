"""Segments of the commitlog, the stretches of them that are no record, and the ranges that they are scanned in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec


@dataclass(frozen=True)
class Segment:
    """One file of the commitlog; offsets are absolute. ``data_end`` is below ``segment_end`` when the file is short."""

    name: str
    path: str
    start: int
    data_end: int
    segment_end: int


@dataclass(frozen=True)
class Hole:
    """A stretch of the log that is no good record; ``offset`` is absolute."""

    segment: str
    offset: int
    length: int
    reason: str


def cut_ranges(segments: Sequence[Segment], size: int, until: int) -> list[RangeSpec]:
    """Ranges of at most ``size`` bytes of all that lies below the absolute offset ``until``, numbered from 0."""
    specs: list[RangeSpec] = []
    for segment in segments:
        high = min(segment.data_end, until)
        for low in range(segment.start, high, size):
            whole = RangeSpec(
                len(specs), segment.path, segment.start, segment.segment_end, segment.data_end, low, high, low == segment.start
            )
            specs.append(replace(whole, high=min(low + size, high)))
    return specs
