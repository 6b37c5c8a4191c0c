"""Logs that end too soon: at every byte of the last two records, and at random points."""

from __future__ import annotations

import random

from tests.fault.case import Case, Segments, some_range_size, some_settings
from tests.fault.layout import laid_records
from tests.fault.stores import SEGMENT, small_store


def every(seed: int) -> int:
    """How many bytes the last two records have: so many cases come first."""
    return sum(record.size for record in laid_records(small_store(seed, short_tail=True))[-2:])


def make(seed: int, number: int) -> Case:
    """Case ``number``: a byte of the last two records, behind these a random point."""
    rng = random.Random(f"truncation {seed} {number}")
    segments = small_store(seed, short_tail=True)
    count = every(seed)
    if number < count:
        record = laid_records(segments)[-2]
        spoilt = _cut(segments, record.segment, record.at + number)
        field = f"byte {number} of the last two records"
    else:
        segments = small_store(seed + number // 50)
        name = rng.choice(list(segments))
        at = rng.randrange(SEGMENT + 1)
        field = f"segment {name} at {at}"
        if rng.random() < 0.1:
            # Only the last segment may be short: refused as input.
            spoilt = {**segments, name: segments[name][:at]}
            field += ", later ones left"
        else:
            spoilt = _cut(segments, name, at)
    return Case("truncations", seed, number, field, spoilt, some_settings(rng, segment_size=SEGMENT), some_range_size(rng))


def _cut(segments: Segments, name: str, at: int) -> Segments:
    """The log up to a byte of a segment."""
    return {other: data if other < name else data[:at] for other, data in segments.items() if other <= name}
