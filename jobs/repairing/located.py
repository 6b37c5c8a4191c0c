"""Find the good records beside each damaged stretch, as far as the summaries of the scanned ranges tell where they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from rocketmq_reindex.storage_format.repair.damage import Damage, RecordAt
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Segment


def located(found: Sequence[Damage], accepted: Sequence[RangeSummary], segments: Sequence[Segment]) -> list[Damage]:
    """Return the damaged stretches with a good record of their segment to begin a walk at, or one of another segment.

    ``accepted`` are the ranges of the damaged log, ``segments`` its files; both in order.
    """
    good = [summary for summary in accepted if summary.first >= 0 and summary.records]
    firsts = [summary.first for summary in good]
    starts = [segment.start for segment in segments]

    def place(offset: int) -> RecordAt:
        segment = segments[bisect_right(starts, offset) - 1]
        return RecordAt(segment.path, segment.start, segment.data_end, offset)

    done: list[Damage] = []
    for damage in found:
        number = bisect_right(firsts, damage.offset - 1) - 1
        before = good[number] if number >= 0 else None
        anchor = before.first if before and before.first >= damage.start else -1
        last = done[-1] if done else None
        if last and last.start == damage.start:
            # A good record begins where the stretch before it ends.
            anchor = max(anchor, last.end)
        if damage.offset == damage.start:
            anchor = -1
        one = replace(damage, anchor=anchor)
        if anchor < 0 and before and before.last_good >= 0:
            one = replace(one, before=place(before.last_good), time_before=before.last_time)
        if damage.end >= min(damage.segment_end, max(damage.data_end, damage.end)):
            number = bisect_right(firsts, damage.end - 1)
            if number < len(good):
                one = replace(one, after=place(good[number].first))
        done.append(one)
    return done
