"""When damage at the log's end is a torn tail: the record that a broker was writing as it crashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary

TORN_TAIL_MAX: Final = 16 << 20
"""Damage with no good record after it, at most so far before the last byte that is not zero, is a torn tail."""


def may_lie_elsewhere(summaries: Sequence[RangeSummary], start: int) -> bool:
    """Whether a segment looks like a torn tail only because its records lie at a distance from the offsets that they name.

    ``summaries`` are those of its ranges from its ``start`` on. True where they end as a torn tail does, and hold no record
    that is good or refused as one: behind a first record that is damaged, a search that asks for their offsets does not find
    them.
    """
    last = max(s.last_nonzero for s in summaries)
    if not start <= last < start + TORN_TAIL_MAX or summaries[-1].tail < 0:
        return False
    return all(max(s.last_good, s.last_sound, s.after_tail, s.later) < 0 for s in summaries)
