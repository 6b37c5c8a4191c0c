"""The commitlog of a store, whole or not: which segment holds an offset, and the message there."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.jobs.store.folders import entries, reason
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.scan.foreign import HEAD, foreign
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages

EXPIRED: Final = "lies before the log's first byte (expired)"
BEYOND: Final = "lies behind the log's last byte"
HOLE: Final = "lies in a segment that is missing"
FILLER: Final = "is the BLANK at a segment's end"
LOST: Final = "stands for lost bytes: a repair put it there"
NOTHING: Final = r.REASONS[r.ZERO]
_OPEN_MAX: Final = 64
_LOOK_BACK: Final = (1 << 16, 1 << 20, 1 << 23)
"""bytes before an offset in which the record around it is looked for: a body has 4 MiB at most by default"""
_MAGIC: Final = re.compile(b"|".join(re.escape(struct.pack(">i", magic)) for magic in (r.MAGIC_V1, r.MAGIC_V2)))


@dataclass(frozen=True)
class SegmentFile:
    """One file of the log: absolute offset of its first byte, bytes."""

    path: str
    start: int
    size: int


def list_log(roots: Sequence[str], notes: Notes) -> list[SegmentFile]:
    """Return the segments in ``roots`` by their start. Other files are added to ``notes``."""
    found = []
    for root in roots:
        listed = entries(root, notes)
        if listed is None:
            notes.add("no commitlog", f"{escape(root)}: is not there: no message can be read")
        for entry in listed or []:
            start = first_byte(entry.name)
            if entry.kind == files.FILE and start is not None:
                found.append(SegmentFile(entry.path, start, entry.size))
            else:
                notes.add("not a segment", f"{escape(entry.path)}: is no segment: not looked at", lost=False)
    return sorted(found, key=lambda segment: segment.start)


def message_at(pages: Pages, start: int, phy_offset: int) -> Message | int:
    """Return the message at an absolute offset of a segment that begins at ``start``, or the code of what stands there.

    Raises OSError and InputError where it cannot be read.
    """
    low = phy_offset - start
    return read_message(lambda at, count: pages.read(low + at, count), phy_offset, pages.size - low)


def _magics(data: bytes) -> list[int]:
    """Where the magic code of a record may stand, the last one first."""
    return [found.start() for found in _MAGIC.finditer(data)][::-1]


class StoreLog:
    """Messages by their physical offset. For a message that cannot be read there is a text that says why."""

    def __init__(self, roots: Sequence[str], notes: Notes) -> None:
        self.segments = list_log(roots, notes)
        self._starts = [segment.start for segment in self.segments]
        self._open: dict[str, Pages] = {}

    @property
    def start(self) -> int:
        """The offset of the first byte; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """The offset behind the last byte; 0 without segments."""
        return self.segments[-1].start + self.segments[-1].size if self.segments else 0

    def pages(self, segment: SegmentFile) -> Pages:
        """Return an open segment, read in pages. Raises OSError and InputError."""
        found = self._open.get(segment.path)
        if found is None:
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
            found = self._open[segment.path] = Pages(segment.path)
        return found

    def segment_of(self, phy_offset: int) -> SegmentFile | str:
        """Return the segment that holds an absolute offset, or a text that says why there is none."""
        number = bisect_right(self._starts, phy_offset) - 1
        if number < 0:
            return EXPIRED
        segment = self.segments[number]
        if phy_offset >= segment.start + segment.size:
            return BEYOND if number == len(self.segments) - 1 else HOLE
        return segment

    def message(self, phy_offset: int) -> Message | str:
        """Return the message at an absolute offset, or a text that says why there is none."""
        segment = self.segment_of(phy_offset)
        if isinstance(segment, str):
            return segment
        try:
            pages = self.pages(segment)
            found = message_at(pages, segment.start, phy_offset)
        except (OSError, InputError) as error:
            return f"cannot be read: {reason(error)}"
        if isinstance(found, Message):
            return LOST if found.is_filler else found
        if found == r.FILLER:
            return FILLER
        if phy_offset == segment.start and (begins := foreign(pages.read(0, HEAD))):
            return f"{r.REASONS.get(found, 'is no record')}: the segment {begins}"
        return r.REASONS.get(found, "is no record")

    def around(self, phy_offset: int) -> Message | None:
        """Return the message whose record holds an absolute offset behind its first byte, if that is found.

        A record names its own place: the nearest one before the offset that does so, and reaches over it, is the one.
        """
        segment = self.segment_of(phy_offset)
        if isinstance(segment, str):
            return None
        for length in _LOOK_BACK:
            low = max(segment.start, phy_offset - length)
            try:
                pages = self.pages(segment)
                # The offset may be one of the record's first bytes.
                end = min(phy_offset + r.AT_BODY_CRC, segment.start + segment.size)
                for at in _magics(pages.read(low - segment.start, end - low)):
                    begin = low + at - r.AT_MAGIC
                    found = message_at(pages, segment.start, begin) if segment.start <= begin < phy_offset else None
                    if isinstance(found, Message) and found.phy_offset + found.size > phy_offset:
                        return found
            except (OSError, InputError):
                return None
            if low == segment.start:
                break
        return None

    def body(self, message: Message, most: int) -> bytes:
        """Return at most ``most`` bytes of the body as it is stored. Raises OSError and InputError."""
        segment = self.segment_of(message.phy_offset)
        if isinstance(segment, str):
            raise InputError(f"offset {message.phy_offset}: {segment}")
        at = message.phy_offset - segment.start + message.body_at
        return self.pages(segment).read(at, min(most, message.body_size))

    def close(self) -> None:
        """Close all open segments."""
        for pages in self._open.values():
            pages.close()
        self._open.clear()
