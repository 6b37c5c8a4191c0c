"""Join the summaries of neighbouring ranges: where one ends the next must begin, else say why not.

Each segment is a chain of its own, since records never span segments. A range whose first record was looked for and does
not stand where the range before ends was a wrong guess: the rest of its segment is scanned again from the known place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_reindex.storage_format.file_names import FIRST_BYTE_MAX
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import INT64_MAX
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.stale_tail import Doubt

TORN_TAIL_MAX: Final = 16 << 20
"""Damage with no good record after it, at most so far before the last byte that is not zero, is a torn tail."""
MISNAMED: Final = "segment is misnamed"


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
    """A stretch of the log that is no good record."""

    segment: str
    offset: int
    length: int
    reason: str


@dataclass
class Chain:
    """The accepted ranges in order, the holes between good records, and what is to be scanned again first."""

    accepted: list[RangeSummary] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    rescans: list[RangeSpec] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    torn: Hole | None = None
    unsure: bool = False
    """the part that was read ends in damage, and there is more: only that tells whether it is a torn tail"""
    later: int = -1
    """first record above --until-time, if it was met"""
    stale: Hole | None = None
    """old records behind the log's end (``storage_format.scan.stale_tail``); nothing from there on is of the log"""
    doubt: Doubt | None = None
    """damage that may be such a stale tail"""
    rolled_back: RolledBack | None = None
    """where old records may lie: those that claim queue offsets of records before them take no place from these"""


@dataclass
class _Loose:
    """Holes of one log in order, before it is known which of them lie behind the last good record."""

    holes: list[Hole] = field(default_factory=list)
    last_good: int = -1
    last_missing: int = -1
    last_sound: int = -1
    nonzero: int = -1


def _chain_segment(
    segment: Segment, ranges: list[RangeSpec], summaries: dict[int, RangeSummary], chain: Chain, loose: _Loose
) -> bool:
    """Chain one segment; returns whether the log goes on behind it (False at --until-time, or damage to stop at)."""
    expected, hole, code = segment.start, -1, 0
    high = ranges[-1].high
    unseen = -1  # index of the range from which on nobody has looked at the place where a record should start

    def note(offset: int, length: int, why: int) -> None:
        last = loose.holes[-1] if loose.holes else None
        before = (segment.name, offset, r.REASONS[why])
        if last and why == r.BAD_POSITION and (last.segment, last.offset + last.length, last.reason) == before:
            # One place, wherever ranges are cut.
            loose.holes[-1] = replace(last, length=last.length + length)
        else:
            loose.holes.append(Hole(segment.name, offset, length, r.REASONS[why]))

    def again(index: int, low: int) -> bool:
        """Everything from ``low`` on is scanned again, now from a known place."""
        chain.rejected.extend(spec.number for spec in ranges[index:])
        chain.rescans.append(RangeSpec(-1, segment.path, segment.start, segment.segment_end, segment.data_end, low, high, True))
        return True

    for index, spec in enumerate(ranges):
        s = summaries[spec.number]
        if unseen >= 0 and (s.first >= 0 or s.last_nonzero >= 0):
            return again(unseen, hole)
        if hole < 0:
            if expected >= spec.high:
                chain.rejected.append(s.number)
                continue
            if not s.known and s.first != expected:
                if s.first < 0 and s.last_nonzero < expected:
                    hole, code, unseen = expected, r.ZERO, index
                    continue
                return again(index, expected)
        elif s.first < 0:
            loose.nonzero = max(loose.nonzero, s.last_nonzero)
            continue
        else:
            note(hole, s.first - hole, code)
            hole = -1
        chain.accepted.append(s)
        for offset, length, why in s.holes:
            note(offset, length, why)
            loose.nonzero = max(loose.nonzero, offset + length - 1)
        loose.nonzero = max(loose.nonzero, s.last_nonzero)
        loose.last_good = max(loose.last_good, s.last_good, s.after_tail)
        loose.last_sound = max(loose.last_sound, s.last_sound)
        if s.later >= 0:
            chain.later = s.later
            loose.last_good = max(loose.last_good, s.later)
            return False
        if s.after_tail >= 0:
            # The walk was stopped at damage before a good record: nothing behind it will be built.
            note(s.tail, s.tail_length or s.after_tail - s.tail, s.tail_code)
            return False
        if s.tail_length:
            note(s.tail, s.tail_length, s.tail_code)
            loose.nonzero = max(loose.nonzero, s.tail + s.tail_length - 1)
            expected = s.tail + s.tail_length
            continue
        if s.tail >= 0:
            hole, code = s.tail, s.tail_code
        else:
            expected = s.end
    if hole >= 0:
        seen = [summaries[spec.number] for spec in ranges]
        if len(ranges) > 1 and may_lie_elsewhere(seen, segment.start):
            return again(0, segment.start)
        note(hole, high - hole, code)
    return True


def may_lie_elsewhere(summaries: list[RangeSummary], start: int) -> bool:
    """Whether ranges from a segment's ``start`` on end as a torn tail does, and hold no record that is good or refused as one.

    Its records may then lie elsewhere than they say behind a first one that is damaged: a search that asks for their place
    does not find them.
    """
    last = max(s.last_nonzero for s in summaries)
    if not start <= last < start + TORN_TAIL_MAX or summaries[-1].tail < 0:
        return False
    return all(max(s.last_good, s.last_sound, s.after_tail, s.later) < 0 for s in summaries)


def _told_elsewhere(segment: Segment, holes: list[Hole], summaries: list[RangeSummary]) -> list[Hole]:
    """The holes of a segment, with its right name where all of its sound records lie at one distance from their places."""
    distances = {distance for s in summaries for distance in s.elsewhere}
    if len(distances) != 1 or any(max(s.last_good, s.after_tail, s.later) >= 0 for s in summaries):
        return holes
    start, last = segment.start + distances.pop(), max(s.last_sound for s in summaries)
    if not 0 <= start <= FIRST_BYTE_MAX:
        return holes
    why = f"{MISNAMED}: its records tell offsets from {start} on, so its name should be {start:020d}"
    found: list[Hole] = []
    for hole in holes:
        if hole.offset > last:
            found.append(hole)
        elif found and found[-1].offset + found[-1].length == hole.offset:
            found[-1] = replace(found[-1], length=found[-1].length + hole.length)
        else:
            found.append(replace(hole, reason=why))
    return found


def chain_ranges(
    segments: list[Segment],
    ranges: dict[int, list[RangeSpec]],
    summaries: dict[int, RangeSummary],
    until: int = INT64_MAX,
) -> Chain:
    """Chain a log below ``until``: ``ranges`` by segment start, in order; ``summaries`` by range number.

    While ``rescans`` is not empty the rest is provisional: scan those (under fresh numbers), put them in the place of the
    rejected ranges from their ``low`` on, and chain again.
    """
    chain, loose = Chain(), _Loose()
    end = segments[0].start if segments else 0
    for segment in segments:
        if end < min(segment.start, until):
            loose.holes.append(Hole(f"{end:020d}", end, segment.start - end, r.MISSING_SEGMENT))
            loose.last_missing = end
        if segment.start not in ranges or segment.start >= until:
            break
        end = segment.segment_end
        if not ranges[segment.start]:
            continue
        met, holes = len(chain.accepted), len(loose.holes)
        goes_on = _chain_segment(segment, ranges[segment.start], summaries, chain, loose)
        loose.holes[holes:] = _told_elsewhere(segment, loose.holes[holes:], chain.accepted[met:])
        if not goes_on:
            break
    # What has a sound frame and CRC is never torn, whatever it is refused for.
    settled = max(loose.last_good, loose.last_missing, loose.last_sound)
    chain.holes = [h for h in loose.holes if h.offset <= settled]
    if chain.holes and loose.last_sound >= chain.holes[-1].offset > loose.last_good:
        # Zeros behind the log's last byte are no loss here either.
        last = chain.holes[-1]
        chain.holes[-1] = replace(last, length=min(last.length, loose.nonzero + 1 - last.offset))
    trailing = [h for h in loose.holes if h.offset > settled]
    if trailing and loose.nonzero >= trailing[0].offset:
        first = trailing[0]
        length = loose.nonzero + 1 - first.offset
        # Where the log was not read to its end, good records may follow.
        chain.unsure = any(segment.data_end > until for segment in segments)
        torn = length <= TORN_TAIL_MAX
        reason = f"torn tail: {first.reason}" if torn else first.reason
        hole = Hole(first.segment, first.offset, length, reason)
        if torn:
            chain.torn = hole
        else:
            chain.holes.append(hole)
    return chain


def cut_ranges(segments: list[Segment], size: int, until: int) -> list[RangeSpec]:
    """Ranges of at most ``size`` bytes of all that lies below the absolute offset ``until``, numbered from 0."""
    specs: list[RangeSpec] = []
    for segment in segments:
        high = min(segment.data_end, until)
        for low in range(segment.start, high, size):
            specs.append(
                RangeSpec(
                    len(specs),
                    segment.path,
                    segment.start,
                    segment.segment_end,
                    segment.data_end,
                    low,
                    min(low + size, high),
                    low == segment.start,
                )
            )
    return specs
