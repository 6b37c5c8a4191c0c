"""Scan those ranges of a mended log again that had damage; what was scanned of the others holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.storage_format.record.layout import CRC_NONE
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, Segment


def scan_again(
    scan: Scan, before: Chain, new: list[Segment], changed: Sequence[tuple[int, int]], *, broken: bool
) -> Chain:  # fmt: skip
    """Scan what changed from the ``new`` segments, and chain all ranges.

    ``before`` is the chain of the damaged log; ``changed`` are stretches [low, high) of it, in order. ``broken``: no CRC is
    asked for in those ranges. The digests of what was read stay those of the damaged log.
    """
    scan.forget_cuts()
    known = set(scan.summaries)
    ends = {summary.number: max(summary.end, summary.tail) for summary in before.accepted}
    again: list[RangeSpec] = []
    for segment in new:
        mine = [(low, high) for low, high in changed if low < segment.segment_end and high > segment.start]
        if mine:
            scan.ranges[segment.start] = _renewed(scan, ends, segment, mine, again)
    task = scan.task
    if broken:
        scan.task = dataclasses.replace(task, settings=dataclasses.replace(task.settings, crc_mode=CRC_NONE))
    scan.more(again)
    chain = scan.settle(new)
    scan.task = task
    for number in scan.summaries.keys() - known:
        scan.summaries[number].digests = {}
    return chain


def _renewed(
    scan: Scan, ends: dict[int, int], segment: Segment, changed: list[tuple[int, int]], again: list[RangeSpec]
) -> list[RangeSpec]:  # fmt: skip
    """The ranges of a segment: each run of those with changes is one new range, which is added to ``again``."""
    old = scan.ranges.get(segment.start, [])
    if not old:
        spec = _numbered(scan, again, segment, segment.start, segment.segment_end)
        return [spec]
    found: list[RangeSpec] = []
    expected, renewed = segment.start, False
    for spec in old:
        high = segment.segment_end if spec is old[-1] else spec.high
        if not any(low < high and stop > spec.low for low, stop in changed):
            found.append(spec)
            if spec.number in ends:
                expected, renewed = max(expected, ends[spec.number]), False
        elif renewed:
            # One that was scanned again before begins at its first record, not where the range before it ends. Those between in
            # which no record begins are in the middle of one of the range that is scanned again: they go with it.
            while found[-1] not in again:
                found.pop()
            found[-1] = again[-1] = dataclasses.replace(again[-1], high=high)
        else:
            found.append(_numbered(scan, again, segment, expected, high))
            renewed = True
    return found


def _numbered(scan: Scan, again: list[RangeSpec], segment: Segment, low: int, high: int) -> RangeSpec:
    number = len(scan.summaries) + len(again)
    spec = RangeSpec(number, segment.path, segment.start, segment.segment_end, segment.segment_end, low, high, True)
    again.append(spec)
    return spec
