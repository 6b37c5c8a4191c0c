"""Where a log begins and ends, by its segments' names, its first record, and a search for its last one."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, Final

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.store.first_bytes import no_record
from rocketmq_reindex.jobs.store.log import SegmentFile, StoreLog
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record.message import Message

BLOCK: Final = 4096
WALKED: Final = 5000
"""records that are passed at most from a known one on, in search of the last"""
_LISTED: Final = 3


def last_record(log: StoreLog) -> Message | None:
    """Return the last record of the log, as a search for the end of what is written tells; None where none is found.

    A segment is made whole, and zeros stand behind its last record. Damage in the last segment may hide what follows.
    """
    # When a broker goes on in the next segment it has made another one behind that (AllocateMappedFileService).
    for segment in reversed(log.segments[-3:]):
        at = _written(log, segment)
        found = (log.around(segment.start + at - 1) or _first(log, segment)) if at else None
        if found is not None:
            return _walked(log, found)
    return None


def _first(log: StoreLog, segment: SegmentFile) -> Message | None:
    found = log.message(segment.start)
    return found if isinstance(found, Message) else None


def _written(log: StoreLog, segment: SegmentFile) -> int:
    """The byte behind the last one in a segment that is not zero, by a binary search; 0 where none is, or it is unreadable."""
    try:
        pages = log.pages(segment)
        low, high = 0, -(-segment.size // BLOCK)
        while low < high:
            middle = (low + high) // 2
            if any(pages.read(middle * BLOCK, BLOCK)):
                low = middle + 1
            else:
                high = middle
        begin = max(0, low - 1) * BLOCK
        return begin + len(pages.read(begin, BLOCK).rstrip(b"\0"))
    except (OSError, InputError):
        return 0


def _walked(log: StoreLog, message: Message) -> Message:
    """The last record from one on. At a segment's end the next one goes on."""
    for _ in range(WALKED):
        following = log.message(message.phy_offset + message.size)
        if not isinstance(following, Message):
            break
        message = following
    return message


def describe_log(log: StoreLog, problems: list[str]) -> dict[str, Any]:
    """Return what is known of the log, and add to ``problems`` what is missing or damaged."""
    segments = log.segments
    sizes = Counter(segment.size for segment in segments)
    found: dict[str, Any] = {
        "segments": len(segments), "bytes": sum(segment.size for segment in segments),
        "segment_size": sizes.most_common(1)[0][0] if sizes else 0, "first_offset": log.start, "end_offset": log.start,
        "first_time": None, "last_time": None, "missing": 0,
    }  # fmt: skip
    if not segments:
        problems.append("commitlog: has no segment")
        return found
    _add_missing(found, segments, problems)
    first, last = log.message(log.start), last_record(log)
    if isinstance(first, Message):
        found["first_time"] = show_time(first.store_time)
    elif not _is_blank(log, segments[0]):
        path = segments[0].path
        problems.append((last is None and foreign(path)) or f"{escape(path)}: its first record: {first}")
    if last is not None:
        found["end_offset"], found["last_time"] = last.phy_offset + last.size, show_time(last.store_time)
    return found


def foreign(path: str) -> str:
    """Return that a segment is none of RocketMQ; "" for one that begins with a record, or that cannot be read."""
    try:
        return no_record(path)
    except (OSError, InputError):
        return ""


def _is_blank(log: StoreLog, segment: SegmentFile) -> bool:
    """Whether a segment begins with zeros, as one does that a broker has just made. What cannot be read does not."""
    try:
        return not any(log.pages(segment).read(0, BLOCK))
    except (OSError, InputError):
        return False


def _add_missing(found: dict[str, Any], segments: list[SegmentFile], problems: list[str]) -> None:
    holes = []
    for one, following in itertools.pairwise(segments):
        if following.start > one.start + one.size:
            holes.append((one.start + one.size, following.start))
        if following.start < one.start + one.size:
            problems.append(f"{escape(following.path)}: begins inside of the segment before it")
    found["missing"] = sum(end - begin for begin, end in holes)
    if holes:
        listed = ", ".join(f"{begin} to {end}" for begin, end in holes[:_LISTED]) + (", ..." if len(holes) > _LISTED else "")
        problems.append(f"commitlog: {counted(found['missing'], 'byte')} of the log have no segment: {listed}")
