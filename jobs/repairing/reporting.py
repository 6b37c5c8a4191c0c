"""What a repair changed: for the summary, the manifest, and whoever reads them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rocketmq_reindex.jobs.building.decisions import segment_of
from rocketmq_reindex.jobs.building.summary import DAMAGE_MAX, Summary
from rocketmq_reindex.storage_format.names import counted
from rocketmq_reindex.storage_format.repair import BLANK, Piece
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.udfs.repair.mend import Mended
from rocketmq_reindex.udfs.repair.segments import WrittenSegment

REPLICA, FILLER, KEPT = "replica", "filler", "kept"
"""How a range was treated: bytes of a replica, bytes that stand for nothing, or left as it was"""


def apart(mended: Sequence[Mended]) -> list[Mended]:
    """Return the ranges in order, none of which overlaps the next: two may have taken the same record between them.

    What replicas have comes first: the record goes with a filler only where that has no room without it.
    """
    found: list[Mended] = []
    for one in sorted(mended, key=lambda one: one.low):
        while found and one.low < found[-1].high:
            one = _joined(found.pop(), one, found)
        found.append(one)
    return found


def _joined(one: Mended, other: Mended, before: list[Mended]) -> Mended:
    """The second of two ranges that overlap, after the first one; or both as one range, where their bytes are of one kind."""
    if one.replica != other.replica:
        # Both end at records, and each damaged stretch is in one of them alone.
        if one.replica and not other.replica:
            before.append(cut(one, one.low, other.low))
            return other
        before.append(one)
        return cut(other, one.high, max(one.high, other.high))
    first, last = one.pieces[0], other.pieces[-1]
    pieces: list[Piece] = [replace(first, high=last.high)]
    if last.kind == BLANK:
        pieces = [replace(last, low=one.low)] if one.low > one.start else [first, replace(last, low=first.high)]
    return replace(
        one, length=other.offset + other.length - one.offset, high=other.high, places=[*one.places, *other.places],
        pieces=pieces,
    )  # fmt: skip


def cut(one: Mended, low: int, high: int) -> Mended:
    """Return less of a range that is a replica's: as far as it lies in [low, high)."""
    return replace(one, low=low, high=high, pieces=[replace(piece, low=low, high=high) for piece in one.pieces])


def warn_of_replicas(summary: Summary, mended: Sequence[Mended], last: int) -> None:
    """Warn of what no replica has, and of what is taken from one on less than a record on each side that is equal.

    ``last`` is the offset of the last good record of the damaged log.
    """
    taken = [one for one in mended if one.replica]
    others, wider = len(mended) - len(taken), [one for one in taken if one.high - one.low > one.length]
    if others:
        summary.warn(f"--replica: {counted(others, 'damaged range')} could not be taken: no replica is sure to have it")
    if wider:
        summary.warn(
            f"--replica: offset {wider[0].low}: records beside the damage are other ones in the replica, and were taken, too "
            f"({counted(len(wider), 'range')} in all): the old ones are in quarantine/"
        )
    for one in taken[-1:]:
        if one.high > last:
            summary.warn(
                f"--replica: offset {one.low}: nothing follows in the damaged log that shows whether it went on as the replica "
                "does"
            )


def report(
    summary: Summary, segments: list[Segment], mended: Sequence[Mended], kept: Sequence[Hole], written: Sequence[WrittenSegment]
) -> None:
    """Say in the summary what was changed; what is lost is damage there."""
    digests = {number: digest for segment in written for number, digest in segment.digests.items()}
    ranges = [_entry(segments, one, digests.get(str(number), "")) for number, one in enumerate(mended)]
    ranges += [_kept_entry(hole) for hole in kept]
    ranges.sort(key=lambda entry: int(entry["offset"]))
    lost = [entry for entry in ranges if entry["how"] != REPLICA]
    for entry in lost[:DAMAGE_MAX]:
        summary.add_damage(entry["segment"], entry["offset"], entry["length"], entry["reason"])
    if rest := lost[DAMAGE_MAX:]:
        size, end = sum(entry["length"] for entry in rest), rest[-1]["offset"] + rest[-1]["length"]
        reason = f"{counted(len(rest), 'more damaged place')}, up to offset {end}"
        summary.add_damage(rest[0]["segment"], rest[0]["offset"], size, reason)
    summary.repair = {
        "ranges": ranges,
        "from_replica": sum(entry["length"] for entry in ranges if entry["how"] == REPLICA),
        "filled": sum(entry["length"] for entry in ranges if entry["how"] == FILLER),
        "kept": sum(entry["length"] for entry in ranges if entry["how"] == KEPT),
        "segments": len(written),
    }


def _entry(segments: list[Segment], one: Mended, digest: str) -> dict[str, Any]:
    return {
        "segment": segment_of(segments, one.offset),
        "offset": one.low,
        "length": one.high - one.low,
        "reason": one.reason,
        "how": REPLICA if one.replica else FILLER,
        "replica": one.replica or None,
        "damaged": [one.offset, one.length],
        "old": one.kept.digest or None,
        "new": digest,
        "records": one.kept.records,
    }


def _kept_entry(hole: Hole) -> dict[str, Any]:
    return {
        "segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason, "how": KEPT,
        "replica": None, "damaged": [hole.offset, hole.length], "old": None, "new": None, "records": 1,
    }  # fmt: skip


def entries(mended: Sequence[Mended], written: Sequence[WrittenSegment]) -> list[dict[str, Any]]:
    """Return the entries of the manifest: the segments, and the files of the quarantine."""
    return [*(segment.entry for segment in written), *(entry for one in mended for entry in one.kept.entries)]
