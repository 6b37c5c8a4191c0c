"""Read the heads of single records: does a record start at an offset, and which queue is it of?"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.text.java_string import java_text
from rocketmq_reindex.udfs import files


@dataclass(frozen=True)
class RecordHead:
    """What the head of a record says. Its lengths add up, and it names its own phy_offset; no CRC is checked."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int


class RecordHeads:
    """Reads the head of one record at a time from the ``segments`` of a log, which are in order.

    The layout is that of ``MessageDecoder`` (RocketMQ 5.3).
    """

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self._segments = segments
        self._starts = [segment.start for segment in segments]

    def at(self, phy_offset: int) -> RecordHead | None:
        """The head of the record that starts at ``phy_offset``; None when none does."""
        number = bisect_right(self._starts, phy_offset) - 1
        if number < 0 or phy_offset + r.RECORD_MIN > self._segments[number].data_end:
            return None
        segment = self._segments[number]
        with files.Reader(segment.path) as reader:
            return self._read(reader, segment, phy_offset)

    @staticmethod
    def _read(reader: files.Reader, segment: Segment, phy_offset: int) -> RecordHead | None:
        head = reader.read(phy_offset - segment.start, r.HEAD_LAYOUT.size)
        total, magic, _, queue_id, _, queue_offset, named, flags, _ = r.HEAD_LAYOUT.unpack(head)
        if magic not in (r.MAGIC_V1, r.MAGIC_V2) or named != phy_offset or total < r.RECORD_MIN:
            return None
        end = phy_offset + total
        extra = r.IPV6_EXTRA * (bool(flags & r.FLAG_BORN_HOST_V6) + bool(flags & r.FLAG_STORE_HOST_V6))
        body_at = phy_offset + r.HEADER_SIZE + extra
        if end > segment.data_end or body_at + 3 > end:
            return None
        (body,) = struct.unpack(">i", reader.read(body_at - 4 - segment.start, 4))
        topic_at, wide = body_at + max(0, body), magic == r.MAGIC_V2
        if topic_at + 4 > end:
            return None
        length_bytes = reader.read(topic_at - segment.start, 2 if wide else 1)
        length = int.from_bytes(length_bytes, "big", signed=True)
        name_at = topic_at + len(length_bytes)
        if length < 0 or name_at + length + 2 > end:
            return None
        raw = reader.read(name_at - segment.start, length + 2)
        if name_at + length + 2 + max(0, int.from_bytes(raw[length:], "big", signed=True)) != end:
            return None
        return RecordHead(java_text(raw[:length]), queue_id, queue_offset, total)
