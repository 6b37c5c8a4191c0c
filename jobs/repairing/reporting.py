"""Report what a repair changed: in the summary, in the manifest, and in warnings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rocketmq_reindex.jobs.building.decisions import segment_of
from rocketmq_reindex.jobs.building.summary import Warnings
from rocketmq_reindex.storage_format.repair import BLANK, Piece
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.repair.mend import Mended
from rocketmq_reindex.udfs.repair.segments import WrittenSegment

REPLICA, FILLER, KEPT = "replica", "filler", "kept"
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
        "kept": sum(entry["length"] for entry in ranges if entry["how"] == KEPT),
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
        "segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason, "how": KEPT,
        "replica": None, "damaged": [hole.offset, hole.length], "old": None, "new": None, "records": 1,
    }  # fmt: skip


def entries(mended: Sequence[Mended], written: Sequence[WrittenSegment]) -> list[dict[str, Any]]:
    """Return the entries of the manifest: the segments, and the files of the quarantine."""
    return [*(segment.entry for segment in written), *(entry for mended_range in mended for entry in mended_range.kept.entries)]
