"""The records before and behind one in the log, also over damage and the ends of segments, as far as they are near it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, record_heads

WINDOWS: Final = (1 << 16, 1 << 20, 1 << 23)
"""bytes in which a record is looked for"""
CANDIDATES: Final = 2_000
"""places in them that are looked at"""
_SEGMENTS: Final = 4
"""segments in which it is looked for"""


def in_log(log: contents.StoreLog, record: Message) -> dict[str, Any]:
    """Return the offsets of the records before and behind one, None where none is found, and the bytes between them.

    Those are bytes that are no record: damage, or what is missing; the filler of a segment's end is none of them.
    """
    segment = log.segment_of(record.phy_offset)
    assert isinstance(segment, contents.SegmentFile)
    begin, end = record.phy_offset - segment.lead, record.phy_offset + record.size
    before, behind = record_before(log, begin), record_behind(log, end)
    return {
        "previous": None if before is None else before.phy_offset,
        "bytesBefore": None if before is None else _between(log, before.phy_offset + before.size, begin),
        "next": None if behind is None else behind.phy_offset,
        "bytesBehind": None if behind is None else _between(log, end, behind.phy_offset - segment.lead),
    }


def _between(log: contents.StoreLog, end: int, begin: int) -> int:
    segment = log.segment_of(end)
    if begin > end and log.message(end) == contents.FILLER and isinstance(segment, contents.SegmentFile):
        end = segment.start + segment.size
    return max(0, begin - end)


def record_before(log: contents.StoreLog, at: int) -> Message | None:
    """Return the last record that ends at an offset of the log or before it; None where none is found near it."""
    for segment in [each for each in log.segments if each.start < at][: -_SEGMENTS - 1 : -1]:
        end = min(at, segment.start + segment.size)
        if (found := last_ended(log, segment, end, end)) is not None:
            return _outermost(log, segment, found, end)
    return None


def last_ended(log: contents.StoreLog, segment: contents.SegmentFile, end: int, used: int) -> Message | None:
    """Return the last record of a segment that begins before the offset ``used``, near it, and ends at ``end`` or before it.

    It names its own place: a record in a body names another one, unless somebody made it so. None where none is found.
    """
    for length in WINDOWS:
        low = max(segment.start, used - length)
        ended = (each for each in _records(log, segment, low, used, -1) if each.phy_offset + each.size <= end)
        if (found := next(ended, None)) is not None:
            return found
        if low == segment.start:
            break
    return None


def _outermost(log: contents.StoreLog, segment: contents.SegmentFile, found: Message, end: int) -> Message:
    """Return the record that holds another one in its body, where one near it does so; else that one."""
    behind = found.phy_offset + found.size
    if behind == end or log.message(behind) == contents.FILLER:
        return found
    low = max(segment.start, found.phy_offset - WINDOWS[-1])
    with contextlib.suppress(OSError, InputError):
        data = log.pages(segment).read(low - segment.start, found.phy_offset - low)
        for begin in record_heads(data, low)[::-1]:
            total = int.from_bytes(data[max(0, begin - low) : begin - low + r.AT_MAGIC], "big")
            if begin >= low and found.phy_offset < begin + total <= end:
                held = message_at_place(log, segment, begin)
                found = held if held is not None and held.phy_offset + held.size > found.phy_offset else found
    return found


def message_at_place(log: contents.StoreLog, segment: contents.SegmentFile, at: int) -> Message | None:
    """Return the record at an offset; None where none stands there that names it. Raises OSError and InputError."""
    record = contents.message_at(log.pages(segment), segment.start, at)
    return record if isinstance(record, Message) and not record.is_filler else None


def record_behind(log: contents.StoreLog, at: int) -> Message | None:
    """Return the first record that begins at an offset of the log or behind it; None where none is found near it."""
    stands = log.message(at)
    if isinstance(stands, Message):
        return stands
    for segment in [each for each in log.segments if each.start + each.size > at][:_SEGMENTS]:
        first = log.message(segment.start) if segment.start >= at else ""
        if isinstance(first, Message):
            return first
        if segment.start < at and stands == contents.FILLER:
            continue
        low, end = max(at, segment.start), segment.start + segment.size
        for length in WINDOWS:
            if (found := next(_records(log, segment, low, min(end, low + length), 1), None)) is not None:
                return found
            if low + length >= end:
                break
    return None


def _records(log: contents.StoreLog, segment: contents.SegmentFile, low: int, high: int, step: int) -> Iterator[Message]:
    """Yield what looks like a record at its own place, and begins in [low, high): forwards, or backwards by a step of -1."""
    with contextlib.suppress(OSError, InputError):
        data = log.pages(segment).read(low - segment.start, high - low)
        for begin in record_heads(data, low)[::step][:CANDIDATES]:
            record = message_at_place(log, segment, begin) if begin >= low else None
            if record is not None:
                yield record
