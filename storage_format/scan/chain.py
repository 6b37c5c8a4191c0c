"""Join the summaries of neighbouring ranges: where one ends the next must begin, else say why not.

Each segment is a chain of its own, since records never span segments. A range whose first record was searched for, and does not
stand where the range before ends, was a wrong guess: the rest of its segment is scanned again from the known offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.scan.segment_chain import SegmentChain, Trail
from rocketmq_reindex.storage_format.scan.stale_tail import Doubt
from rocketmq_reindex.storage_format.scan.torn_tail import TORN_TAIL_MAX

LOST_FILLS_MAX: Final = 5_000_000
"""One task may hold all of them. Names of segments that lie far apart are no proof of so many records, either."""


@dataclass
class Chain:
    """The accepted ranges in order, the holes between good records, and what is to be scanned again first."""

    accepted: list[RangeSummary] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    rescans: list[RangeSpec] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    torn: Hole | None = None
    unsure: bool = False
    """the part that was read ends in damage, and the log goes on: only what follows says whether it is a torn tail"""
    later: int = -1
    """first record above --until-time, if it was met"""
    stale: Hole | None = None
    """old records behind the log's end (``scan.stale_tail``); nothing from there on is of the log"""
    doubt: Doubt | None = None
    """damage that may be such a stale tail"""
    rolled_back: RolledBack | None = None
    """where old records may lie: where they have queue offsets of records before them, those keep theirs"""

    def gaps(self, holes: Iterable[Hole]) -> tuple[int, ...]:
        """Return where lost stretches of the log end, ascending: ``holes``, and what stands for lost bytes.

        The order of queues is decided alike before and after a repair. Tombstones stand for lost bytes, and have units: behind
        the last one of a queue more may be lost, which its end tells, and its beginning does not.
        """
        lost = [(offset, offset + size) for summary in self.accepted for offset, size in summary.lost]
        lost += [(hole.offset, hole.offset + hole.length) for hole in holes]
        found: list[int] = []
        for low, high in sorted(lost):
            # One stretch, wherever ranges are cut.
            if found and low <= found[-1]:
                found[-1] = max(found[-1], high)
            else:
                found.append(high)
        return tuple(found)

    def fills(self, max_fill: int) -> int:
        """Return how many missing queue offsets may be filled: ``max_fill``, and as many as lost bytes had records."""
        lost = sum(hole.length for hole in self.holes) + sum(size for summary in self.accepted for _, size in summary.lost)
        return max_fill + min(lost // r.RECORD_MIN, LOST_FILLS_MAX)


def chain_ranges(
    segments: list[Segment],
    ranges: dict[int, list[RangeSpec]],
    summaries: dict[int, RangeSummary],
    until: int = INT64_MAX,
) -> Chain:
    """Chain a log below the absolute offset ``until``: ``ranges`` by segment start, in order; ``summaries`` by range number.

    While ``rescans`` is not empty the rest is provisional: scan those (under fresh numbers), put them in place of the rejected
    ranges from their ``low`` on, and chain again.
    """
    chain, trail = Chain(), Trail()
    end = segments[0].start if segments else 0
    for segment in segments:
        if end < min(segment.start, until):
            trail.holes.append(Hole(f"{end:020d}", end, segment.start - end, r.MISSING_SEGMENT))
            trail.last_missing = end
        if segment.start not in ranges or segment.start >= until:
            break
        end = segment.segment_end
        if not ranges[segment.start]:
            continue
        one = SegmentChain(segment, ranges[segment.start], summaries, trail)
        one.chain()
        one.name_misnamed()
        chain.accepted += one.accepted
        chain.rejected += one.rejected
        chain.rescans += [one.rescan] if one.rescan is not None else []
        if not one.goes_on:
            break
    chain.later = trail.later
    _settle(chain, trail, any(segment.data_end > until for segment in segments))
    return chain


def _settle(chain: Chain, trail: Trail, more: bool) -> None:
    """Sort the holes into those between records and a torn tail. ``more``: the log goes on behind what was read."""
    # What has a sound frame and CRC is never torn, whatever it is refused for.
    settled = max(trail.last_good, trail.last_missing, trail.last_sound)
    chain.holes = [h for h in trail.holes if h.offset <= settled]
    if chain.holes and trail.last_sound >= chain.holes[-1].offset > trail.last_good:
        # Zeros behind the log's last byte are no loss here either.
        last = chain.holes[-1]
        chain.holes[-1] = replace(last, length=min(last.length, trail.nonzero + 1 - last.offset))
    trailing = [h for h in trail.holes if h.offset > settled]
    if not trailing or trail.nonzero < trailing[0].offset:
        return
    first = trailing[0]
    length = trail.nonzero + 1 - first.offset
    # Where the log was not read to its end, good records may follow.
    chain.unsure = more
    if length <= TORN_TAIL_MAX:
        chain.torn = Hole(first.segment, first.offset, length, f"torn tail: {first.reason}")
    else:
        chain.holes.append(Hole(first.segment, first.offset, length, first.reason))
