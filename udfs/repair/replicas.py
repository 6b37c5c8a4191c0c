"""Take a damaged stretch from a replica or a backup, where it is certain that both logs are the same there.

Master and slave hold the same bytes at the same offsets (``HAService``). A stretch is taken only if the replica's records chain
from its first byte to its last, with right positions and CRCs, and if the good records on both sides are equal in both logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.repair.damage import Damage, RecordAt
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.repair.walking import SegmentFile, Walker, record_bytes


@dataclass(frozen=True)
class Replica:
    """The segments of a replica, by their first offset."""

    segments: dict[int, SegmentFile]

    @classmethod
    def of_fields(cls, listed: Sequence[Sequence[object]]) -> Replica:
        """The replica with these segments, as lists of fields."""
        found = [SegmentFile(*fields) for fields in listed]  # type: ignore[arg-type]  # JSON has no types
        return cls({segment.start: segment for segment in found})

    def has(self, walker: Walker, damage: Damage, borders: Sequence[RecordAt]) -> SegmentFile | None:
        """The replica's segment with the bytes of ``damage``, if they may be taken; None else.

        ``borders`` are the good records on its two sides, one of which may lie in another segment, or be missing where the log
        begins or ends. Without any border nothing is taken.
        """
        segment = self.segments.get(damage.start)
        if segment is None or segment.segment_end != damage.segment_end or segment.data_end < damage.end or not borders:
            return None
        try:
            if not all(self._is_equal(border, damage) for border in borders):
                return None
            found = walker.walk(segment, damage.offset, damage.end)
        except (OSError, InputError):
            # A backup that cannot be read gives nothing.
            return None
        ends = found.end == damage.end or (damage.end == damage.segment_end and found.end == damage.segment_end)
        return segment if ends and not found.holes and found.tail < 0 else None

    def _is_equal(self, border: RecordAt, damage: Damage) -> bool:
        """Whether the replica has the same bytes where ``border`` lies in the damaged log."""
        mine = record_bytes(border)
        length = damage.segment_end - damage.start
        start = damage.start + (border.offset - damage.start) // length * length
        segment = self.segments.get(start)
        if segment is None or border.offset + len(mine) > segment.data_end:
            return False
        with files.Reader(segment.path) as reader:
            return reader.read(border.offset - segment.start, len(mine)) == mine
