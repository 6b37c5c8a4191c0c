"""Walk the records of a stretch of a segment, to know its last one, whether it is whole, and what lies in damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.repair.damage import RecordAt
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary, Segment
from rocketmq_reindex.storage_format.scan.settings import Block, ScanSettings
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader

_CHUNK: Final = 8 << 20
_ROWS: Final = 1 << 16


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

    def walk(self, segment: Segment, low: int, high: int) -> RangeSummary:
        """Walk the records that start in [low, high), the first one at ``low``."""
        for _ in _blocks(self._records, segment, low, high):
            pass
        return self._records.summary

    def framed(self, segment: Segment, low: int, high: int) -> Iterator[int]:
        """Yield the offsets of records in [low, high) whose frame is sound, whatever their CRC says.

        Those that no queue can have, by their topic's name, are left out.
        """
        high = min(high, segment.data_end)
        if low < high:
            for block in _blocks(self._broken, segment, low, high):
                yield from block.messages.phy_offset.tolist()


def _blocks(scanner: RangeScanner, segment: Segment, low: int, high: int) -> Iterator[Block]:
    spec = RangeSpec(0, segment.path, segment.start, segment.segment_end, segment.data_end, low, high, True)
    with SegmentReader(segment.path, segment.start) as reader:
        yield from scanner.scan(spec, reader.read, reader.view)


def is_completed(segment: Segment, offset: int) -> bool:
    """Whether the record at ``offset``, in which a short file ends, has a sound frame as soon as zeros follow on the file."""
    with files.Reader(segment.path) as reader:

        def padded(low: int, count: int) -> bytes:
            at = offset + low
            return reader.read(at - segment.start, max(0, min(count, segment.data_end - at))).ljust(count, b"\0")

        return isinstance(read_message(padded, offset, segment.segment_end - offset), Message)


def record_bytes(place: RecordAt) -> bytes:
    """The bytes of a good record, from its file. Raises OSError and InputError."""
    with files.Reader(place.segment.path) as reader:
        at = place.offset - place.segment.start
        size = int.from_bytes(reader.read(at, 4), "big", signed=True)
        return reader.read(at, max(0, min(size, place.segment.data_end - place.offset)))


def message_of(data: bytes, offset: int) -> Message | None:
    """The record of the absolute ``offset`` that ``data`` begins with, if it has its frame."""
    found = read_message(lambda at, count: data[at : at + count], offset, len(data))
    return found if isinstance(found, Message) else None
