"""Find the good records beside each damaged stretch, as far as the summaries of the scanned ranges tell where they are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocketmq_reindex.storage_format.repair.damage import Damage, RecordAt
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs.repair.mend import NEIGHBOURS

_NEAR: Final = NEIGHBOURS
"""Anchors of one stretch: a walk begins at one that lies before the record that is looked for."""


def located(found: Sequence[Damage], accepted: Sequence[RangeSummary], segments: Sequence[Segment]) -> list[Damage]:
    """Return the damaged stretches with a good record of their segment to begin a walk at, or one of another segment.

    ``accepted`` are the ranges of the damaged log, ``segments`` its files; both in order.
    """
    good = [summary for summary in accepted if summary.first >= 0 and summary.last_good >= 0]
    firsts = [summary.first for summary in good]
    starts = [segment.start for segment in segments]

    def place(offset: int, anchor: int) -> RecordAt:
        return RecordAt(segments[bisect_right(starts, offset) - 1], offset, anchor)

    done: list[Damage] = []
    for damage in found:
        before, after = bisect_right(firsts, damage.segment.start - 1) - 1, bisect_right(firsts, damage.segment.segment_end - 1)
        low = damage.segment.start
        anchors = firsts[before + 1 : bisect_right(firsts, damage.offset - 1)]
        if done and done[-1].segment == damage.segment:
            # A good record begins where the stretch before it ends.
            low = done[-1].end
            anchors.append(low)
        near = sorted({at for at in anchors if low <= at < damage.offset})[-_NEAR:]
        one = replace(damage, anchors=tuple(near), ends_log=after >= len(good) and damage.segment == found[-1].segment)
        # A replica may have the record across the border otherwise: the ones beyond it may be looked at then.
        if before >= 0:
            last = good[before].last_good
            first = max(before - _NEAR + 1, bisect_left(firsts, starts[bisect_right(starts, last) - 1]))
            one = replace(one, before=place(last, _first_good(good[first])))
        if after < len(good):
            first = _first_good(good[after])
            one = replace(one, after=place(first, first))
        done.append(one)
    return done


def _first_good(summary: RangeSummary) -> int:
    """The first good record of a range, which may begin with damage."""
    at = summary.first
    for offset, length, _ in summary.holes:
        if offset == at:
            at += length
    return at


def record_ends(accepted: Sequence[RangeSummary], segments: Sequence[Segment]) -> dict[int, int]:
    """Return where the records of each segment end, by its start; its filler counts as one of them."""
    starts = [segment.start for segment in segments]
    found: dict[int, int] = {}
    for summary in accepted:
        start = starts[bisect_right(starts, summary.low) - 1]
        found[start] = max(found.get(start, start), summary.end if summary.end >= 0 else summary.tail)
    return found
