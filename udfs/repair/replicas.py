"""Take a damaged stretch from a replica or a backup, where it is certain that both logs are the same there.

Master and slave hold the same bytes at the same offsets (``HAService``). A stretch is taken only if the replica's records chain
from its first byte to its last, with right positions and CRCs, and if the good records on both sides are equal in both logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.repair.damage import Damage, RecordAt
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.repair.walking import Walker, message_of, record_bytes


@dataclass(frozen=True)
class Replica:
    """The segments of a replica, by their first offset."""

    segments: dict[int, Segment]

    @classmethod
    def of_fields(cls, listed: Sequence[Sequence[object]]) -> Replica:
        """The replica with these segments, as lists of fields."""
        found = [Segment(*fields) for fields in listed]  # type: ignore[arg-type]  # JSON has no types
        return cls({segment.start: segment for segment in found})

    def chains(self, walker: Walker, damage: Damage, low: int, high: int) -> Segment | None:
        """The replica's segment, if its records chain from ``low`` to ``high`` exactly; None else.

        Where nothing follows in the damaged log, both logs may end in the segment: then zeros follow on the last record.
        """
        segment = self.segments.get(damage.segment.start)
        if segment is None or segment.segment_end != damage.segment.segment_end or segment.data_end < high:
            return None
        try:
            found = walker.walk(segment, low, high)
        except InputError:
            # One that has become shorter gives nothing. One that cannot be read ends the run: it may have the right bytes.
            return None
        whole = high == segment.segment_end
        ends = found.end == high or (whole and found.end == segment.segment_end)
        runs_out = whole and damage.ends_log and found.tail >= 0 and found.last_nonzero < 0
        return segment if not found.holes and (runs_out or (ends and found.tail < 0)) else None

    def has(self, border: RecordAt) -> bool:
        """Whether the replica has the same bytes where the good record ``border`` lies in the damaged log."""
        mine = record_bytes(border)
        return self.read(border, len(mine)) == mine

    def is_alike(self, border: RecordAt) -> bool:
        """Whether the replica has a record of the same size and body there: the same message, but for other fields."""
        data = record_bytes(border)
        other = self.read(border, len(data))
        mine, theirs = message_of(data, border.offset), message_of(other, border.offset)
        if mine is None or theirs is None or mine.size != theirs.size:
            return False
        bodies = [one[found.body_at : found.body_at + found.body_size] for found, one in ((mine, data), (theirs, other))]
        return bodies[0] == bodies[1]

    def is_sound(self, walker: Walker, border: RecordAt) -> bool:
        """Whether the replica has any good record where ``border`` begins in the damaged log."""
        segment = self.segments.get(border.segment.start)
        if segment is None or border.offset >= segment.data_end:
            return False
        try:
            return walker.walk(segment, border.offset, border.offset + 1).last_good == border.offset
        except InputError:
            return False

    def read(self, place: RecordAt, size: int) -> bytes:
        """``size`` bytes from where the record ``place`` begins in the damaged log; nothing where the replica has fewer."""
        segment = self.segments.get(place.segment.start)
        if segment is None or place.offset + size > segment.data_end:
            return b""
        try:
            with files.Reader(segment.path) as reader:
                return reader.read(place.offset - segment.start, size)
        except InputError:
            return b""
