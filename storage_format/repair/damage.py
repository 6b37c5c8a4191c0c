"""The stretches of a log that are to be mended, segment by segment, from the holes that a scan has found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment

SHORT: Final = "segment file is too short"


class Place(NamedTuple):
    """One hole of a damaged stretch: absolute offset, bytes, and why it is no good record."""

    offset: int
    length: int
    reason: str


class RecordAt(NamedTuple):
    """A good record: its segment and its absolute offset.

    ``anchor`` is a good record of the segment at or before it, from which its neighbours may be found; -1 for none.
    """

    segment: Segment
    offset: int
    anchor: int = -1

    @classmethod
    def of_fields(cls, fields: Sequence[Any] | None) -> RecordAt | None:
        """The record with these fields, in which objects are lists (``udfs.plans``); None for none."""
        return cls(Segment(*fields[0]), *fields[1:]) if fields else None


@dataclass(frozen=True)
class Damage:
    """A stretch [offset, offset + length) of one segment that holds no good record. All offsets are absolute.

    The path of a missing segment is "".
    """

    offset: int
    length: int
    segment: Segment
    places: tuple[Place, ...]
    anchors: tuple[int, ...] = ()
    """good records of the segment that begin before ``offset``, ascending, with good records from each up to there"""
    before: RecordAt | None = None
    """the last good record of the segments before"""
    after: RecordAt | None = None
    """the first good record of the segments behind"""
    ends_log: bool = False
    """whether nothing follows in the segments behind, good or damaged"""

    @property
    def end(self) -> int:
        """The offset behind the stretch."""
        return self.offset + self.length

    @property
    def reason(self) -> str:
        """Why it is damage: each reason once."""
        return reason_of(self.places)

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> Damage:
        """The damage with these fields, in which tuples and objects are lists (``udfs.plans``)."""
        found = cls(*fields)
        return replace(
            found,
            segment=Segment(*fields[2]),
            anchors=tuple(found.anchors),
            places=tuple(Place(*place) for place in found.places),
            before=RecordAt.of_fields(found.before),
            after=RecordAt.of_fields(found.after),
        )


def reason_of(places: Iterable[Place]) -> str:
    """Return why the places are no good records: each reason once."""
    return "; ".join(dict.fromkeys(place.reason for place in places))


def whole_segments(segments: Sequence[Segment]) -> list[Segment]:
    """Return all segments from the first to the last, whole: the missing ones between them, too, with the path ""."""
    found: list[Segment] = []
    for segment in segments:
        size = segment.segment_end - segment.start
        while found and found[-1].segment_end < segment.start:
            start = found[-1].segment_end
            found.append(Segment(f"{start:020d}", "", start, start, start + size))
        found.append(segment)
    return found


def damages(holes: Iterable[Hole], whole: Sequence[Segment], ends: Mapping[int, int]) -> list[Damage]:
    """Return the damaged stretches of a log, in order: neighbouring holes of a segment are one.

    ``whole`` are its segments (``whole_segments``). The end of a file that is too short is damage, unless the log ends there
    or before, or its records lie before it: ``ends`` has where those of each segment end, by its start; its filler counts as
    one.
    """
    of_segment: dict[int, list[Place]] = {segment.start: [] for segment in whole}
    log_end = max((end for start, end in ends.items() if end > start), default=0)
    for start, place in _in_segments(holes, whole):
        of_segment[start].append(place)
        log_end = max(log_end, place.offset + place.length)
    for segment in whole[:-1]:
        end = ends.get(segment.start, segment.start)
        if segment.start < log_end and segment.data_end < segment.segment_end and segment.path and end < segment.segment_end:
            of_segment[segment.start].append(Place(end, segment.segment_end - end, SHORT))
    return [damage for segment in whole for damage in _joined(segment, sorted(set(of_segment[segment.start])))]


def _in_segments(holes: Iterable[Hole], whole: Sequence[Segment]) -> Iterator[tuple[int, Place]]:
    """Each hole cut at the borders of segments, with the start of its segment."""
    ordered, number = sorted(holes, key=lambda hole: hole.offset), 0
    for hole in ordered:
        at, end = hole.offset, hole.offset + hole.length
        while whole[number].segment_end <= at:
            number += 1
        inner = number
        while at < end and inner < len(whole):
            stop = min(end, whole[inner].segment_end)
            yield whole[inner].start, Place(at, stop - at, hole.reason)
            at, inner = stop, inner + 1


def _joined(segment: Segment, places: list[Place]) -> Iterator[Damage]:
    """The places of a segment, those that touch as one stretch."""
    joined: list[Place] = []
    end = -1
    for place in places:
        if joined and place.offset > end:
            yield _damage(segment, joined, end)
            joined = []
        joined.append(place)
        end = max(end, place.offset + place.length)
    if joined:
        yield _damage(segment, joined, end)


def _damage(segment: Segment, places: list[Place], end: int) -> Damage:
    low = places[0].offset
    return Damage(low, end - low, segment, tuple(places))
