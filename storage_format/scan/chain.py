"""Join the summaries of neighbouring ranges: where one ends the next must begin, else say why not.

Each segment is a chain of its own, since records never span segments. A range whose first record was searched for, and does not
stand where the range before ends, was a wrong guess: the rest of its segment is scanned again from the known offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_reindex.storage_format.layouts import FIRST_BYTE_MAX, INT64_MAX
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.entry import EntryPlace, check_order
from rocketmq_reindex.storage_format.scan import ranges as scan_ranges
from rocketmq_reindex.storage_format.scan.stale_tail import Doubt

LOST_FILLS_MAX: Final = 5_000_000
"""One task may hold all of them. Names of segments that lie far apart are no proof of so many records, either."""
MISNAMED: Final = "segment is misnamed"


@dataclass
class Chain:
    """The accepted ranges in order, the holes between good records, and what is to be scanned again first."""

    accepted: list[scan_ranges.RangeSummary] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    rescans: list[scan_ranges.RangeSpec] = field(default_factory=list)
    holes: list[scan_ranges.Hole] = field(default_factory=list)
    torn: scan_ranges.Hole | None = None
    unsure: bool = False
    """the part that was read ends in damage, and the log goes on: only what follows says whether it is a torn tail"""
    later: int = -1
    """first record above --until-time, or that is not committed, if it was met"""
    uncommitted: int = -1
    """the index of the entry of DLedger that is not committed, where ``later`` is one"""
    stale: scan_ranges.Hole | None = None
    """old records behind the log's end (``scan.stale_tail``); nothing from there on is of the log"""
    doubt: Doubt | None = None
    """damage that may be such a stale tail"""
    rolled_back: RolledBack | None = None
    """where old records may lie: where they have queue offsets of records before them, those keep theirs"""

    def gaps(self, holes: Iterable[scan_ranges.Hole]) -> tuple[int, ...]:
        """Return where lost stretches of the log end, ascending: ``holes``, and what stands for lost bytes.

        The order of queues is decided alike before and after a repair. Tombstones stand for lost bytes, and have units: behind
        the last one of a queue more may be lost, which its end tells, and its beginning does not.
        """
        lost = [(offset, offset + size) for summary in self.accepted for offset, size in summary.lost]
        lost += [(hole.offset, hole.offset + hole.length) for hole in holes]
        ends: list[int] = []
        for low, high in sorted(lost):
            # One stretch, wherever ranges are cut.
            if ends and low <= ends[-1]:
                ends[-1] = max(ends[-1], high)
            else:
                ends.append(high)
        return tuple(ends)

    def fills(self, max_fill: int) -> int:
        """Return how many missing queue offsets may be filled: ``max_fill``, and as many as lost bytes had records."""
        lost = sum(hole.length for hole in self.holes) + sum(size for summary in self.accepted for _, size in summary.lost)
        return max_fill + min(lost // r.RECORD_MIN, LOST_FILLS_MAX)


def misnamed(holes: Iterable[scan_ranges.Hole]) -> scan_ranges.Hole | None:
    """Return the first hole that is damage only because its segment has a wrong name; None for none."""
    return next((hole for hole in holes if hole.reason.startswith(MISNAMED)), None)


def chain_ranges(
    segments: list[scan_ranges.Segment],
    ranges: dict[int, list[scan_ranges.RangeSpec]],
    summaries: dict[int, scan_ranges.RangeSummary],
    until: int = INT64_MAX,
) -> Chain:
    """Return a log's chain below the absolute offset ``until``. ``ranges``: by segment start, in order; ``summaries`` by range.

    While ``rescans`` is not empty the rest is provisional: scan those (under fresh numbers), put them in place of the rejected
    ranges from their ``low`` on, and chain again.
    """
    chain, trail = Chain(), _Trail()
    end = segments[0].start if segments else 0
    for segment in segments:
        if end < min(segment.start, until):
            trail.holes.append(scan_ranges.Hole(f"{end:020d}", end, segment.start - end, r.MISSING_SEGMENT))
            trail.last_missing = end
        if segment.start not in ranges or segment.start >= until:
            break
        end = segment.segment_end
        if not ranges[segment.start]:
            continue
        links = _SegmentChain(segment, ranges[segment.start], summaries, trail)
        links.chain()
        links.name_misnamed()
        chain.accepted += links.accepted
        chain.rejected += links.rejected
        chain.rescans += [links.rescan] if links.rescan is not None else []
        if not links.goes_on:
            break
    chain.later, chain.uncommitted = trail.later, trail.uncommitted
    _settle(chain, trail, any(segment.data_end > until for segment in segments))
    return chain


def _settle(chain: Chain, trail: _Trail, goes_on: bool) -> None:
    """Sort the holes into those between records and a torn tail. ``goes_on``: the log goes on behind what was read."""
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
    chain.unsure = goes_on
    if length <= scan_ranges.TORN_TAIL_MAX:
        chain.torn = scan_ranges.Hole(first.segment, first.offset, length, f"torn tail: {first.reason}")
    else:
        chain.holes.append(scan_ranges.Hole(first.segment, first.offset, length, first.reason))


@dataclass
class _Trail:
    """What the chained ranges of a log say of its end. Offsets are absolute, -1 for none.

    ``holes`` are all stretches that are no record, ``last_missing`` the first byte of the last missing segment, ``nonzero`` the
    last byte of damage that is not zero; the others are as in ``RangeSummary``.
    """

    holes: list[scan_ranges.Hole] = field(default_factory=list)
    last_good: int = -1
    last_missing: int = -1
    last_sound: int = -1
    nonzero: int = -1
    later: int = -1
    uncommitted: int = -1
    entry: Sequence[int] = ()
    """the fields of ``EntryPlace`` of the last entry of DLedger, nothing before the first"""


class _SegmentChain:
    """Chains the ranges of one segment.

    ``accepted`` are the ranges that follow on each other, ``rejected`` the numbers of those that do not. ``rescan`` is what is
    to be scanned again, now that it is known where a record starts. ``goes_on`` is false where the log is not read on behind
    this segment: at --until-time, or at damage to stop at.
    """

    def __init__(
        self,
        segment: scan_ranges.Segment,
        specs: list[scan_ranges.RangeSpec],
        summaries: dict[int, scan_ranges.RangeSummary],
        trail: _Trail,
    ) -> None:
        self.accepted: list[scan_ranges.RangeSummary] = []
        self.rejected: list[int] = []
        self.rescan: scan_ranges.RangeSpec | None = None
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
        if len(self._specs) > 1 and scan_ranges.may_lie_elsewhere(self._summaries, self._segment.start):
            self._scan_again(0, self._segment.start)
        else:
            self._note(self._hole, self._specs[-1].high - self._hole, self._hole_code)

    def _joins(self, index: int, spec: scan_ranges.RangeSpec, summary: scan_ranges.RangeSummary) -> bool:
        """Return whether the range goes on where the ones before it end. If it does not, what is to be done is noted."""
        if self._unseen >= 0 and (summary.first >= 0 or summary.last_nonzero >= 0):
            self._scan_again(self._unseen, self._hole)
            return False
        if self._out_of_order(spec, summary):
            self._scan_again(index, self._hole if self._hole >= 0 else self._expected)
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

    def _out_of_order(self, spec: scan_ranges.RangeSpec, summary: scan_ranges.RangeSummary) -> bool:
        """Return whether the range begins with an entry of DLedger that does not follow on those before it: it is old.

        The scan did not know these. With them it finds out where entries go on that do.
        """
        before = self._trail.entry
        if not before or tuple(before) == tuple(spec.before):
            return False
        if r.BAD_ORDER in (summary.tail_code, *(code for offset, _, code in summary.holes if offset == summary.first)):
            # Those behind its first entry spoke against that.
            return True
        if not summary.entries:
            # An index that is wrong looks as if it was not committed.
            return summary.uncommitted >= 0
        index, term, time, start = summary.entries[:4]
        return check_order(EntryPlace(*before), EntryPlace(index, term, time), start) != r.GOOD

    def _ends_hole(self, summary: scan_ranges.RangeSummary) -> bool:
        """Return whether damage that begins in a range before this one ends in it."""
        if summary.first < 0:
            self._trail.nonzero = max(self._trail.nonzero, summary.last_nonzero)
            return False
        self._note(self._hole, summary.first - self._hole, self._hole_code)
        self._hole = -1
        return True

    def _accept(self, summary: scan_ranges.RangeSummary) -> None:
        """Take over what the range says, and where the next record should start."""
        s, trail = summary, self._trail
        self.accepted.append(s)
        if s.entries:
            trail.entry = s.entries[4:]
        for offset, length, code in s.holes:
            self._note(offset, length, code)
            trail.nonzero = max(trail.nonzero, offset + length - 1)
        trail.nonzero = max(trail.nonzero, s.last_nonzero)
        trail.last_good = max(trail.last_good, s.last_good, s.after_tail, s.later)
        trail.last_sound = max(trail.last_sound, s.last_sound)
        if s.later >= 0:
            trail.later, trail.uncommitted, self.goes_on = s.later, s.uncommitted, False
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
        if (
            last
            and code in (r.BAD_POSITION, r.STALE_ENTRY)
            and (last.segment, last.offset + last.length, last.reason) == before
        ):
            holes[-1] = replace(last, length=last.length + length)
        else:
            holes.append(scan_ranges.Hole(self._segment.name, offset, length, reason))

    def _scan_again(self, index: int, low: int) -> None:
        """All from ``low`` on is scanned again; ``index`` is the first range that goes."""
        self.rejected += [spec.number for spec in self._specs[index:]]
        self.rescan = self._segment.part(-1, low, self._specs[-1].high, known=True, before=self._trail.entry)

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
        renamed: list[scan_ranges.Hole] = []
        for hole in self._trail.holes[self._first_hole :]:
            if hole.offset > last:
                renamed.append(hole)
            elif renamed and renamed[-1].offset + renamed[-1].length == hole.offset:
                renamed[-1] = replace(renamed[-1], length=renamed[-1].length + hole.length)
            else:
                renamed.append(replace(hole, reason=why))
        self._trail.holes[self._first_hole :] = renamed
