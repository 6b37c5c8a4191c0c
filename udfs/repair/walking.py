"""Walk the records of a stretch of a segment, to know its last one, whether it is whole, and what lies in damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.repair.damage import RecordAt
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader

_CHUNK: Final = 8 << 20
_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class SegmentFile:
    """A file of a log: its path, and absolute offsets of its first byte, of its end, and of its end when it is whole."""

    path: str
    start: int
    data_end: int
    segment_end: int


class Walker:
    """Walks stretches one after another, as the scan with ``settings`` does."""

    def __init__(self, settings: ScanSettings) -> None:
        plain = replace(
            settings, want_units=False, want_items=False, want_topics=False, want_messages=False, want_digests=False,
            chunk=min(_CHUNK, settings.chunk), block_rows=_ROWS,
        )  # fmt: skip
        self._records = RangeScanner(plain)
        broken = replace(plain, crc_mode=r.CRC_NONE, search_crc=r.CRC_NONE, want_messages=True)
        self._broken = RangeScanner(broken)

    def walk(self, file: SegmentFile, low: int, high: int) -> RangeSummary:
        """Walk the records that start in [low, high), the first one at ``low``."""
        spec = RangeSpec(0, file.path, file.start, file.segment_end, file.data_end, low, high, True)
        with SegmentReader(file.path, file.start) as segment:
            for _ in self._records.scan(spec, segment.read, segment.view):
                pass
        return self._records.summary

    def framed(self, file: SegmentFile, low: int, high: int) -> Iterator[int]:
        """Yield the offsets of records in [low, high) whose frame is sound, whatever their CRC says.

        Those that no queue can have, by their topic's name, are left out.
        """
        high = min(high, file.data_end)
        if high <= low:
            return
        spec = RangeSpec(0, file.path, file.start, file.segment_end, file.data_end, low, high, True)
        with SegmentReader(file.path, file.start) as segment:
            for block in self._broken.scan(spec, segment.read, segment.view):
                yield from block.messages.phy_offset.tolist()


def record_bytes(place: RecordAt) -> bytes:
    """The bytes of a good record, from its file. Raises OSError and InputError."""
    with files.Reader(place.path) as reader:
        at = place.offset - place.start
        size = int.from_bytes(reader.read(at, 4), "big", signed=True)
        return reader.read(at, max(0, min(size, place.data_end - place.offset)))
