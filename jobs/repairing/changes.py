"""What a repair changes: damage that shows in queues out of order, tombstones for lost records, and the report of all of it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from rocketmq_reindex.jobs.building.decisions import OddQueues, segment_of
from rocketmq_reindex.jobs.building.summary import Warnings
from rocketmq_reindex.storage_format import errors, repair, showing, topics
from rocketmq_reindex.storage_format.queue.order import Fill, KeptUnits
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair import BLANK, Piece
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.placements import FILLS, KEPT
from rocketmq_reindex.udfs.repair.mend import NEIGHBOURS, Mended
from rocketmq_reindex.udfs.repair.segments import WrittenSegment

# --------------------------------------------------------------------------------------------------------- neighbours of damage
# Find the good records beside each damaged stretch, as far as the summaries of the scanned ranges tell where they are.

_NEAR: Final = NEIGHBOURS
"""Anchors of one stretch: a walk begins at one that lies before the record that is looked for."""


def located(
    damages: Sequence[repair.SegmentDamage], accepted: Sequence[RangeSummary], segments: Sequence[Segment]
) -> list[repair.SegmentDamage]:
    """Return the damaged stretches with a good record of their segment to begin a walk at, or one of another segment.

    ``accepted`` are the ranges of the damaged log, ``segments`` its files; both in order.
    """
    good = [summary for summary in accepted if summary.first >= 0 and summary.last_good >= 0]
    firsts = [summary.first for summary in good]
    starts = [segment.start for segment in segments]

    def place(offset: int, anchor: int) -> repair.RecordAt:
        return repair.RecordAt(segments[bisect_right(starts, offset) - 1], offset, anchor)

    located_damages: list[repair.SegmentDamage] = []
    for damage in damages:
        before, after = bisect_right(firsts, damage.segment.start - 1) - 1, bisect_right(firsts, damage.segment.segment_end - 1)
        low = damage.segment.start
        anchors = firsts[before + 1 : bisect_right(firsts, damage.offset - 1)]
        if located_damages and located_damages[-1].segment == damage.segment:
            # A good record begins where the stretch before it ends.
            low = located_damages[-1].end
            anchors.append(low)
        near = sorted({at for at in anchors if low <= at < damage.offset})[-_NEAR:]
        placed = replace(damage, anchors=tuple(near), ends_log=after >= len(good) and damage.segment == damages[-1].segment)
        # A replica may have the record across the border otherwise: the ones beyond it may be looked at then.
        if before >= 0:
            last = good[before].last_good
            first = max(before - _NEAR + 1, bisect_left(firsts, starts[bisect_right(starts, last) - 1]))
            placed = replace(placed, before=place(last, _first_good(good[first])))
        if after < len(good):
            first = _first_good(good[after])
            placed = replace(placed, after=place(first, first))
        located_damages.append(placed)
    return located_damages


def _first_good(summary: RangeSummary) -> int:
    """Return the first good record of a range, which may begin with damage."""
    at = summary.first
    for offset, length, _ in summary.holes:
        if offset == at:
            at += length
    return at


def record_ends(accepted: Sequence[RangeSummary], segments: Sequence[Segment]) -> dict[int, int]:
    """Return where the records of each segment end, by its start; its filler counts as one of them."""
    starts = [segment.start for segment in segments]
    ends: dict[int, int] = {}
    for summary in accepted:
        start = starts[bisect_right(starts, summary.low) - 1]
        ends[start] = max(ends.get(start, start), summary.end if summary.end >= 0 else summary.tail)
    return ends


# ---------------------------------------------------------------------------------------------------------- wrong queue offsets
# What the queues out of order say of damage: records out of line, and queue offsets whose records are lost.


class Gap(NamedTuple):
    """Queue offsets from ``queue_offset`` on whose records are lost: they lay in [low, high) of the log."""

    topic: str
    queue: int
    queue_offset: int
    offsets: int
    low: int
    high: int


def wrong_offsets(odd: OddQueues, segments: list[Segment]) -> list[Hole]:
    """Return the records whose queue offsets are sure to be wrong, as holes: damage that shows in no other way.

    The bytes of all other records out of line may be as a broker wrote them: a repair leaves them alone, and says so.

    Raises RefusedError where a queue has more records out of line than are listed one by one.
    """
    holes = []
    for queue in odd.queues():
        name = f"queue {showing.escape(queue.topic)}/{queue.queue}"
        if queue.more_lost:
            raise errors.RefusedError(f"{name}: {queue.more_lost.records} more records out of line: is this a commitlog?")
        reason = f"{r.OUT_OF_LINE} ({name})"
        wrong = (record for record in queue.lost if record.is_wrong)
        holes += [Hole(segment_of(segments, record.phy_offset), record.phy_offset, record.size, reason) for record in wrong]
    return holes


def gaps(odd: OddQueues) -> Iterator[Gap]:
    """Yield the gaps of the queues, in which each message has a record of its own.

    A light queue's messages are records of other topics, and a batch has many messages: nobody knows how many were in one.
    Of its own topics a broker reads the records itself, and stops at one that lacks what it wrote there. In front of a queue's
    new beginning nobody knows whether what is missing was of the old life or the new one: a record of the wrong one is out of
    line.
    """
    for queue in odd.queues():
        if queue.batch or queue.where is None or topics.is_own(queue.topic):
            continue
        rows = np.asarray(queue.where.read())
        kept = [KeptUnits(*row) for row in rows[: KEPT * queue.where.kept].reshape(-1, KEPT).tolist()]
        fills = [Fill(*row) for row in rows[KEPT * queue.where.kept :].reshape(-1, FILLS).tolist()]
        between_lives = set(queue.between_lives)
        if fills and fills[0].position < kept[0].begin and not kept[0].shift and kept[0].begin not in between_lives:
            yield Gap(queue.topic, queue.queue, fills[0].position, fills[0].length, 0, kept[0].phy_offset)
        for before, after in pairwise(kept):
            if after.begin in between_lives or before.shift or after.shift:
                continue
            if before.stop < after.begin and before.end <= after.phy_offset:
                yield Gap(queue.topic, queue.queue, before.stop, after.begin - before.stop, before.end, after.phy_offset)


# ------------------------------------------------------------------------------------------------------------------- tombstones
# Put ordinary records at queue offsets whose messages are lost, in the place of the lost bytes.


@dataclass
class _Room:
    """The lost bytes of one range, and the tombstones that stand in it; ``at`` is where the next one begins.

    ``end`` is where the last one may end: up to the end of a segment no record may reach, as behind it a recovery looks for the
    segment's filler.
    """

    one: Mended
    at: int
    end: int
    pieces: list[repair.Piece] = field(default_factory=list)

    def put(self, gap: Gap) -> Gap:
        """Put records for as many offsets of ``gap`` as there is room for. Return what is left of it."""
        first = self.one.pieces[0]
        topic = gap.topic.encode()
        size = repair.tombstone_min(topic, first.demands)
        count = min(gap.offsets, (self.end - self.at) // size)
        for number in range(count):
            self.pieces.append(replace(
                first, kind=repair.TOMBSTONE, low=self.at, high=self.at + size, topic=topic.hex(), queue=gap.queue,
                queue_offset=gap.queue_offset + number,
            ))  # fmt: skip
            self.at += size
        return gap._replace(queue_offset=gap.queue_offset + count, offsets=gap.offsets - count)

    def filled(self, bounds: tuple[int, int]) -> Mended:
        """Return the range with its tombstones, and what stands behind them."""
        first = self.one.pieces[0]
        if not self.pieces:
            return self.one
        fillers: list[repair.Piece] | None = []
        if self.at < self.one.high:
            fillers = repair.lost_pieces(self.at, self.one.high, bounds, first.time, first.demands)
        if fillers is None:
            # Too few bytes for a record are the last tombstone's body.
            fillers = []
            self.pieces[-1] = replace(self.pieces[-1], high=self.one.high)
        return replace(self.one, pieces=[*self.pieces, *fillers])


def with_tombstones(mended: Sequence[Mended], gaps: Iterable[Gap], ends: dict[int, int]) -> tuple[list[Mended], int]:
    """Return the ranges with tombstones for the ``gaps``, and how many lost offsets have found no room.

    ``ends`` has the end of each segment by its start. A gap that one range alone can have comes first.
    """
    rooms = [
        _Room(
            mended_range,
            mended_range.low,
            mended_range.high - (r.FILLER_MIN if mended_range.high == ends[mended_range.start] else 0),
        )
        for mended_range in mended
        if mended_range.pieces[0].kind != repair.COPY
    ]
    homeless = 0
    for gap, rooms_of_gap in sorted(((gap, _of(gap, rooms)) for gap in gaps), key=lambda each: len(each[1])):
        remaining = gap
        for room in rooms_of_gap:
            if remaining.offsets:
                remaining = room.put(remaining)
        homeless += remaining.offsets
    filled = {room.one.low: room.filled((room.one.start, ends[room.one.start])) for room in rooms}
    return [filled.get(mended_range.low, mended_range) for mended_range in mended], homeless


def _of(gap: Gap, rooms: Sequence[_Room]) -> list[_Room]:
    """Return the ranges in which the records of a gap may have lain, in order."""
    return [room for room in rooms if gap.low <= room.one.low and room.one.high <= gap.high]


# ----------------------------------------------------------------------------------------------------------------------- report
# Report what a repair changed: in the summary, in the manifest, and in warnings.

REPLICA, FILLER, LEFT = "replica", "filler", "kept"
"""How a range was treated: bytes of a replica, bytes that stand for nothing, or left as it was"""


def apart(mended: Sequence[Mended]) -> list[Mended]:
    """Return the ranges in order, none of which overlaps the next: two may have taken the same record between them.

    What replicas have comes first: the record goes with a filler only where that has no room without it.
    """
    ranges: list[Mended] = []
    for mended_range in sorted(mended, key=lambda mended_range: mended_range.low):
        while ranges and mended_range.low < ranges[-1].high:
            mended_range = _joined(ranges.pop(), mended_range, ranges)
        ranges.append(mended_range)
    return ranges


def _joined(a: Mended, b: Mended, before: list[Mended]) -> Mended:
    """Return the second of two ranges that overlap, after the first one; or both as one range, where their bytes are of one
    kind."""
    if a.replica != b.replica:
        # Both end at records, and each damaged stretch is in one of them alone.
        if a.replica and not b.replica:
            before.append(cut(a, a.low, b.low))
            return b
        before.append(a)
        return cut(b, a.high, max(a.high, b.high))
    first, last = a.pieces[0], b.pieces[-1]
    pieces: list[Piece] = [replace(first, high=last.high)]
    if last.kind == BLANK:
        pieces = [replace(last, low=a.low)] if a.low > a.start else [first, replace(last, low=first.high)]
    return replace(
        a, length=b.offset + b.length - a.offset, high=b.high, places=[*a.places, *b.places],
        pieces=pieces,
    )  # fmt: skip


def cut(mended_range: Mended, low: int, high: int) -> Mended:
    """Return less of a range that is a replica's: as far as it lies in [low, high)."""
    return replace(
        mended_range, low=low, high=high, pieces=[replace(piece, low=low, high=high) for piece in mended_range.pieces]
    )


def of_replicas(mended: Sequence[Mended], last: int) -> Iterator[str]:
    """Yield a warning of what no replica has, and of what is taken from one on less than a record on each side that is equal.

    ``last`` is the offset of the last good record of the damaged log.
    """
    taken = [mended_range for mended_range in mended if mended_range.replica]
    not_taken = len(mended) - len(taken)
    wider = [mended_range for mended_range in taken if mended_range.high - mended_range.low > mended_range.length]
    if not_taken:
        yield f"--replica: {counted(not_taken, 'damaged range')} could not be taken: no replica is sure to have it"
    if wider:
        yield (
            f"--replica: offset {wider[0].low}: records beside the damage are other ones in the replica, and were taken, too "
            f"({counted(len(wider), 'range')} in all): the old ones are in quarantine/"
        )
    for mended_range in taken[-1:]:
        if mended_range.high > last:
            yield (
                f"--replica: offset {mended_range.low}: nothing follows in the damaged log that shows whether it went on as "
                "the replica does"
            )


def report(
    segments: list[Segment], mended: Sequence[Mended], kept: Sequence[Hole], written: Sequence[WrittenSegment]
) -> tuple[dict[str, Any], Warnings]:
    """Return what was changed, and warnings of what is lost."""
    warnings = Warnings()
    digests = {number: digest for segment in written for number, digest in segment.digests.items()}
    ranges = [_entry(segments, mended_range, digests.get(str(number), "")) for number, mended_range in enumerate(mended)]
    ranges += [_kept_entry(hole) for hole in kept]
    ranges.sort(key=lambda entry: int(entry["offset"]))
    lost = [entry for entry in ranges if entry["how"] != REPLICA]
    warnings.add_damages([Hole(entry["segment"], entry["offset"], entry["length"], entry["reason"]) for entry in lost])
    return {
        "ranges": ranges,
        "from_replica": sum(entry["length"] for entry in ranges if entry["how"] == REPLICA),
        "filled": sum(entry["length"] for entry in ranges if entry["how"] == FILLER),
        "kept": sum(entry["length"] for entry in ranges if entry["how"] == LEFT),
        "segments": len(written),
    }, warnings


def _entry(segments: list[Segment], mended_range: Mended, digest: str) -> dict[str, Any]:
    return {
        "segment": segment_of(segments, mended_range.offset),
        "offset": mended_range.low,
        "length": mended_range.high - mended_range.low,
        "reason": mended_range.reason,
        "how": REPLICA if mended_range.replica else FILLER,
        "replica": mended_range.replica or None,
        "damaged": [mended_range.offset, mended_range.length],
        "old": mended_range.kept.digest or None,
        "new": digest,
        "records": mended_range.kept.records,
    }


def _kept_entry(hole: Hole) -> dict[str, Any]:
    return {
        "segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason, "how": LEFT,
        "replica": None, "damaged": [hole.offset, hole.length], "old": None, "new": None, "records": 1,
    }  # fmt: skip


def entries(mended: Sequence[Mended], written: Sequence[WrittenSegment]) -> list[dict[str, Any]]:
    """Return the entries of the manifest: the segments, and the files of the quarantine."""
    return [*(segment.entry for segment in written), *(entry for mended_range in mended for entry in mended_range.kept.entries)]
