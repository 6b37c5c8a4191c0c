"""Chain the ranges of one segment: where one ends the next must begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_reindex.storage_format.file_names import FIRST_BYTE_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.scan.torn_tail import may_lie_elsewhere

MISNAMED: Final = "segment is misnamed"


def misnamed(holes: Iterable[Hole]) -> Hole | None:
    """Return the first hole that is damage only because its segment has a wrong name; None for none."""
    return next((hole for hole in holes if hole.reason.startswith(MISNAMED)), None)


@dataclass
class Trail:
    """What the chained ranges of a log say of its end. Offsets are absolute, -1 for none.

    ``holes`` are all stretches that are no record, ``last_missing`` the first byte of the last missing segment, ``nonzero`` the
    last byte of damage that is not zero; the others are as in ``RangeSummary``.
    """

    holes: list[Hole] = field(default_factory=list)
    last_good: int = -1
    last_missing: int = -1
    last_sound: int = -1
    nonzero: int = -1
    later: int = -1


class SegmentChain:
    """Chains the ranges of one segment.

    ``accepted`` are the ranges that follow on each other, ``rejected`` the numbers of those that do not. ``rescan`` is what is
    to be scanned again, now that it is known where a record starts. ``goes_on`` is false where the log is not read on behind
    this segment: at --until-time, or at damage to stop at.
    """

    def __init__(self, segment: Segment, specs: list[RangeSpec], summaries: dict[int, RangeSummary], trail: Trail) -> None:
        self.accepted: list[RangeSummary] = []
        self.rejected: list[int] = []
        self.rescan: RangeSpec | None = None
        self.goes_on = True
        self._segment, self._specs, self._trail = segment, specs, trail
        self._summaries = [summaries[spec.number] for spec in specs]
        self._first_hole = len(trail.holes)
        self._expected = segment.start
        """where the next record should start"""
        self._hole, self._hole_code = -1, 0
        """start of damage whose end is not yet known, and why it is damage"""
        self._unseen = -1
        """the first range in which nobody has looked at the byte where a record should start"""

    def chain(self) -> None:
        """Chain all ranges in their order."""
        for index, (spec, summary) in enumerate(zip(self._specs, self._summaries, strict=True)):
            if self._joins(index, spec, summary):
                self._accept(summary)
            if self.rescan is not None or not self.goes_on:
                return
        if self._hole < 0:
            return
        if len(self._specs) > 1 and may_lie_elsewhere(self._summaries, self._segment.start):
            self._scan_again(0, self._segment.start)
        else:
            self._note(self._hole, self._specs[-1].high - self._hole, self._hole_code)

    def _joins(self, index: int, spec: RangeSpec, summary: RangeSummary) -> bool:
        """Whether the range goes on where the ones before it end. If it does not, what is to be done is noted."""
        if self._unseen >= 0 and (summary.first >= 0 or summary.last_nonzero >= 0):
            self._scan_again(self._unseen, self._hole)
            return False
        if self._hole >= 0:
            return self._ends_hole(summary)
        if self._expected >= spec.high:
            # The last record before it reaches beyond it.
            self.rejected.append(summary.number)
            return False
        if summary.known or summary.first == self._expected:
            return True
        if summary.first < 0 and summary.last_nonzero < self._expected:
            # Zeros to the range's end. Where the record should start matters only if something follows.
            self._hole, self._hole_code, self._unseen = self._expected, r.ZERO, index
        else:
            self._scan_again(index, self._expected)
        return False

    def _ends_hole(self, summary: RangeSummary) -> bool:
        """Whether damage that begins in a range before this one ends in it."""
        if summary.first < 0:
            self._trail.nonzero = max(self._trail.nonzero, summary.last_nonzero)
            return False
        self._note(self._hole, summary.first - self._hole, self._hole_code)
        self._hole = -1
        return True

    def _accept(self, summary: RangeSummary) -> None:
        """Take over what the range says, and where the next record should start."""
        s, trail = summary, self._trail
        self.accepted.append(s)
        for offset, length, code in s.holes:
            self._note(offset, length, code)
            trail.nonzero = max(trail.nonzero, offset + length - 1)
        trail.nonzero = max(trail.nonzero, s.last_nonzero)
        trail.last_good = max(trail.last_good, s.last_good, s.after_tail, s.later)
        trail.last_sound = max(trail.last_sound, s.last_sound)
        if s.later >= 0:
            trail.later, self.goes_on = s.later, False
        elif s.after_tail >= 0:
            # The walk was stopped at damage before a good record: nothing behind it will be built.
            self._note(s.tail, s.tail_length or s.after_tail - s.tail, s.tail_code)
            self.goes_on = False
        elif s.tail_length:
            self._note(s.tail, s.tail_length, s.tail_code)
            self._expected = s.tail + s.tail_length
            trail.nonzero = max(trail.nonzero, self._expected - 1)
        elif s.tail >= 0:
            self._hole, self._hole_code = s.tail, s.tail_code
        else:
            self._expected = s.end

    def _note(self, offset: int, length: int, code: int) -> None:
        """Note a hole. Records that lie one after another at a wrong offset are one hole, wherever ranges are cut."""
        holes, reason = self._trail.holes, r.REASONS[code]
        last = holes[-1] if holes else None
        before = (self._segment.name, offset, reason)
        if last and code == r.BAD_POSITION and (last.segment, last.offset + last.length, last.reason) == before:
            holes[-1] = replace(last, length=last.length + length)
        else:
            holes.append(Hole(self._segment.name, offset, length, reason))

    def _scan_again(self, index: int, low: int) -> None:
        """All from ``low`` on is scanned again; ``index`` is the first range that goes."""
        segment = self._segment
        self.rejected += [spec.number for spec in self._specs[index:]]
        self.rescan = RangeSpec(
            -1, segment.path, segment.start, segment.segment_end, segment.data_end, low, self._specs[-1].high, True
        )

    def name_misnamed(self) -> None:
        """Where all sound records of the segment name offsets at one distance from their own, give its holes the right name."""
        distances = {distance for s in self.accepted for distance in s.elsewhere}
        if len(distances) != 1 or any(max(s.last_good, s.after_tail, s.later) >= 0 for s in self.accepted):
            return
        start, last = self._segment.start + distances.pop(), max(s.last_sound for s in self.accepted)
        size = self._segment.segment_end - self._segment.start
        # Segments are as long as each other: what begins elsewhere is an older copy of records, no segment.
        if not 0 <= start <= FIRST_BYTE_MAX or (start - self._segment.start) % size:
            return
        why = f"{MISNAMED}: its records tell offsets from {start} on, so its name should be {start:020d}"
        found: list[Hole] = []
        for hole in self._trail.holes[self._first_hole :]:
            if hole.offset > last:
                found.append(hole)
            elif found and found[-1].offset + found[-1].length == hole.offset:
                found[-1] = replace(found[-1], length=found[-1].length + hole.length)
            else:
                found.append(replace(hole, reason=why))
        self._trail.holes[self._first_hole :] = found
