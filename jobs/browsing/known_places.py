"""What searches in a log have found out about it, so that a later part goes on where one ended, and how its bytes are named.

A part is short: it may end inside of a segment's damage, or on the way from the segment's start to a place that was asked for.
What is known up to there is kept, so that the next part goes on and none begins anew.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import struct
import threading
import time
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.scan import ranges
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.scan.segments import committed_index

MARGIN: Final = 3_600_000
"""milliseconds by which a clock may have been set without harm: a segment is passed over only where it is further away"""
PLACES_KEPT: Final = 20_000
HOLED_KEPT: Final = 16
"""of these, those with a list of damage: only the last segments of logs have one"""
_SEGMENTS_MAX: Final = 50_000
"""segments whose files are told apart from what lay in their place before"""
_ZEROS: Final = 4 << 20
"""bytes that are looked at at once"""
Key = tuple[str, int, int]
"""a segment: its path, and the file that lies there"""

# ----------------------------------------------------------------------------------------------------------------------- places


class SegmentKeys:
    """Names the segments of a log by the files that lie there now: one that is put in the place of another is another one."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._marks: dict[str, tuple[int, int]] = {}
        for root in roots:
            # Who reads what cannot be listed is told why.
            with contextlib.suppress(OSError, errors.InputError):
                self._marks |= {files.join(root, each.name): each.mark[1:] for each in files.states(root, _SEGMENTS_MAX).files}

    def of(self, segment: contents.SegmentFile) -> Key:
        """Return the key of a segment."""
        return segment.path, *self._marks.get(segment.path, (0, 0))


def from_start(segment: contents.SegmentFile) -> log_rows.ScanWay:
    """Return the way that has not begun."""
    return log_rows.ScanWay(ranges.RangeSummary(-1, segment.start, segment.start, True, end=segment.start))


class KnownPlaces:
    """What earlier parts have found: the store times of the first records of segments, and places to go on from.

    A segment that has a record keeps it: a log grows behind that.
    """

    def __init__(self) -> None:
        self._known: dict[Key, int] = {}
        self._ways: dict[Key, tuple[list[int], list[ranges.RangeSummary]]] = {}
        self._count, self._holed = 0, 0
        # Two parts may be looked at by two threads.
        self._lock = threading.Lock()

    def way(self, key: Key, log: contents.StoreLog, segment: contents.SegmentFile, offset: int) -> log_rows.ScanWay:
        """Return the way to the nearest known place at an offset of a segment or before it; else that from its start."""
        with self._lock:
            offsets, summaries = self._ways.get(key, ([], []))
            before = summaries[: bisect.bisect_right(offsets, offset)]
        near = next((each for each in reversed(before) if (end := zeros_from(each)) < 0 or not is_written(log, end)), None)
        if near is None:
            return from_start(segment)
        # Somebody may have written other bytes into the same file.
        is_sound = near.last_good < segment.start or isinstance(log.message(near.last_good), Message)
        return log_rows.ScanWay(near) if is_sound else from_start(segment)

    def add(self, key: Key, before: ranges.RangeSummary, *, followed: bool) -> None:
        """Note what is known up to a place. Where data follows behind the segment, a list of its damage is of no use."""
        kept = dataclasses.replace(before, holes=[] if followed else before.holes)
        at = before.end if before.end >= 0 else before.high
        with self._lock:
            if self._count >= PLACES_KEPT or self._holed >= HOLED_KEPT:
                self._ways.clear()
                self._count = self._holed = 0
            offsets, summaries = self._ways.setdefault(key, ([], []))
            number = bisect.bisect_left(offsets, at)
            if offsets[number : number + 1] != [at]:
                offsets.insert(number, at)
                summaries.insert(number, kept)
                self._count += 1
                self._holed += bool(kept.holes)
            summaries[number] = kept

    def of(self, log: contents.StoreLog, keys: SegmentKeys) -> list[int | None]:
        """Return the time of each segment's first record (milliseconds), None where no record stands there."""
        times = list[int | None]()
        for segment in log.segments:
            key = keys.of(segment)
            if key not in self._known and isinstance(first := log.message(segment.start), Message):
                if len(self._known) >= PLACES_KEPT:
                    self._known.clear()
                self._known[key] = first.store_time
            times.append(self._known.get(key))
        return times

    def outside(self, log: contents.StoreLog, keys: SegmentKeys, since: int | None, until: int | None) -> set[int]:
        """Return the starts of segments that have no record of a span of time; none where times do not rise along the log.

        A broker stores with the time of its clock, so a segment has times between its own first one and that of the next. A
        clock that is set back breaks this: so MARGIN is kept on both sides, and where one first record is older than that of an
        earlier segment nothing is passed over.
        """
        if since is None and until is None:
            return set()
        times = self.of(log, keys)
        known = [each for each in times if each is not None]
        if known != sorted(known):
            return set()
        found = set[int]()
        for segment, first, behind in zip(log.segments, times, [*times[1:], None], strict=True):
            is_before = since is not None and first is not None and behind is not None and behind + MARGIN < since
            is_behind = until is not None and first is not None and first - MARGIN >= until
            if is_before or is_behind:
                found.add(segment.start)
        return found


# ---------------------------------------------------------------------------------------------------------------------- the log


def segment_at(log: contents.StoreLog, offset: int) -> contents.SegmentFile | None:
    """Return the segment that holds an offset, or the next one behind it; None at the log's end."""
    return next((segment for segment in log.segments if segment.start + segment.size > offset), None)


def range_of(log: contents.StoreLog, file: contents.SegmentFile, low: int, high: int) -> log_rows.LogRange:
    """Return the bytes [low, high) of a segment as what is scanned. Segments that are missing before it are a part of it."""
    number = log.segments.index(file)
    longest = max(each.size for each in log.segments)
    end = file.start + (longest if number + 1 == len(log.segments) else file.size)
    segment = ranges.Segment(files.base(file.path), file.path, file.start, file.start + file.size, end, file.lead)
    followed = any(log.message(later.start) != contents.NOTHING for later in log.segments[number + 1 :])
    missing = None
    if number and low == file.start:
        behind = max(each.start + each.size for each in log.segments[:number])
        if behind < low:
            missing = ranges.Hole(f"{behind:020d}", behind, low - behind, r.MISSING_SEGMENT)
    committed = committed_index(files.parent(file.path))
    spec = segment.part(0, low, high, known=True)
    return log_rows.LogRange(spec, segment.name, followed, missing, committed if committed >= 0 else layouts.INT64_MAX)


def zeros_from(known: ranges.RangeSummary) -> int:
    """Return where the records ended, if zeros alone were seen from there on, -1 where something else was."""
    return known.tail if known.end < 0 and known.last_nonzero < known.tail else -1


def is_written(log: contents.StoreLog, offset: int) -> bool:
    """Return whether something stands at an offset, as far as it can be read: a record does not begin with a zero number."""
    with contextlib.suppress(OSError, errors.InputError):
        if not isinstance(segment := log.segment_of(offset), str):
            return any(log.pages(segment).read(offset - segment.start, r.FILLER_MIN))
    return False


def zeros_until(segment: contents.SegmentFile, offset: int, deadline: float) -> int:
    """Return how far zeros alone reach from an offset of a segment on, as far as there is time to look."""
    at = offset - segment.start
    with files.Reader(segment.path) as reader:
        while (at := reader.next_data(at)) < segment.size and time.monotonic() < deadline:
            piece = np.empty(min(_ZEROS, segment.size - at), np.uint8)
            reader.read_into(at, piece)
            if piece.any():
                # A record begins with bytes that may be zero.
                return segment.start + max(offset - segment.start, at - contents.BLOCK)
            at += len(piece)
    return segment.start + (at if at >= segment.size else max(offset - segment.start, at - contents.BLOCK))


# ----------------------------------------------------------------------------------------------------------------------- sample

_HEAD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
"""a record up to its body"""


def sample() -> bytes:
    """Return a log of two records: the first is damaged, the other one has a key and a tag."""
    body, topic, properties = b"sample", b"sample", b"KEYS\1sample\2TAGS\1sample\2UNIQ_KEY\1sample\2"
    size, crc, log = r.RECORD_MIN + len(body + topic + properties), zlib.crc32(body) & layouts.INT32_MAX, b""
    for magic in (0, r.MAGIC_V1):
        log += _HEAD.pack(size, magic, crc, 0, 0, 0, len(log), 0, 0, bytes(8), 0, bytes(8), 0, 0, len(body)) + body
        log += bytes([len(topic)]) + topic + len(properties).to_bytes(2, "big") + properties
    return log
