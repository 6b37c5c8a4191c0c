"""What has to come of a damaged log: the records that survive, where each is served, and how a mended log reads as a whole."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.preflight.log_walk import Item, LogRecord, read_log
from tests.reference import records as r
from tests.repair.bases import Base
from tests.tools.batch_log import BATCH_TOPICS

LOST_FLAG = 0x4C4F5354
LIGHT = "%LMQ%"
BLANK_HEAD = 8


class Served(NamedTuple):
    """The message at an offset of a queue lies at ``offset`` in the log."""

    topic: str
    queue: int
    queue_offset: int
    offset: int


@dataclass(frozen=True)
class Truth:
    """``survivors`` are the good records of the undamaged log of which no byte was touched.

    ``known``: where a record of the undamaged log lies, or one that is accepted in the damaged one. ``good_to``: behind the
    last record that is accepted there.
    """

    survivors: list[LogRecord]
    touched: list[tuple[int, int]]
    known: set[int]
    accepted: list[LogRecord]
    good_to: int
    end: int
    """behind the last record of the undamaged log"""
    unread: list[tuple[int, int]]
    """the bytes behind the head of each BLANK of the undamaged log: nobody reads them"""

    @cached_property
    def unsure(self) -> list[LogRecord]:
        """The touched records that are still good ones for all that can be checked."""
        survivors = {one.offset for one in self.survivors}
        return [one for one in self.accepted if one.offset not in survivors]

    def hidden(self, offset: int) -> bool:
        """Whether the byte is of a touched record that is still a good one for all that can be checked, or unread."""
        number = bisect_left(self.accepted, offset + 1, key=lambda record: record.offset) - 1
        if number >= 0 and offset < self.accepted[number].offset + self.accepted[number].size:
            return True
        return meets(self.unread, offset, offset + 1)


def truth_of(whole: Path, damaged: Path, release: str, touched: list[tuple[int, int]]) -> Truth:
    """``whole`` and ``damaged`` are commitlog folders; ``touched`` is what differs."""
    good = read_log(whole, release, True)
    accepted = read_log(damaged, release, True)
    survivors = [record for record in good if not meets(touched, record.offset, record.offset + record.size)]
    good_to = accepted[-1].offset + accepted[-1].size if accepted else 0
    known = {record.offset for record in good + accepted}
    return Truth(survivors, touched, known, accepted, good_to, good[-1].offset + good[-1].size, list(_unread(whole, good)))


def _unread(folder: Path, good: list[LogRecord]) -> Iterator[tuple[int, int]]:
    ends = [record.offset + record.size for record in good]
    for path in sorted(folder.iterdir()):
        start, end = int(path.name), int(path.name) + path.stat().st_size
        number = bisect_left(ends, end + 1) - 1
        yield max(start, ends[number] if number >= 0 else start) + BLANK_HEAD, end


def meets(stretches: Sequence[tuple[int, int]], low: int, high: int) -> bool:
    """Whether one of the ``stretches``, which are in order and apart, has a byte of [low, high)."""
    number = bisect_left(stretches, high, key=lambda stretch: stretch[0]) - 1
    return number >= 0 and stretches[number][1] > low


def places(base: Base, record: LogRecord) -> Iterator[Served]:
    """Where a record's message is served: in a batch queue at the first and the last offset of the batch."""
    if not record.gets_unit:
        return
    found = record.properties
    if base.kind == "batch" and record.topic in BATCH_TOPICS:
        first, count = record.queue_offset, 1
        if "INNER_NUM" in found and "INNER_BASE" in found:
            first, count = int(found["INNER_BASE"]), int(found["INNER_NUM"])
        for at in {first, first + count - 1}:
            yield Served(record.topic, record.queue, at, record.offset)
        return
    yield Served(record.topic, record.queue, record.queue_offset, record.offset)
    if base.kind == "light":
        names, numbers = found["INNER_MULTI_DISPATCH"].split(","), found["INNER_MULTI_QUEUE_OFFSET"].split(",")
        for name, number in zip(names, numbers, strict=True):
            yield Served(name, 0, int(number), record.offset)


@dataclass
class Mended:
    """A mended log read from its first byte on: where the chain of its records ends, and where its lost-record fillers lie."""

    first: int = 0
    end: int = 0
    fillers: set[int] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    """of the fillers"""


def read_mended(folder: Path, release: str, own_crc: bool) -> Mended:
    """As a broker that reads the whole log: one good record behind the other, segments filled up by BLANK.

    ``own_crc``: it checks ``__CRC32#``.
    """
    paths = sorted(folder.iterdir())
    good = {record.offset for record in read_log(folder, release, True, own_crc)}
    found = Mended(int(paths[0].name), int(paths[0].name))
    for path in paths:
        data, base, at = path.read_bytes(), int(path.name), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            found.end = base + at
            # Whatever its size is (CommitLog.checkMessageAndReturnSize).
            if magic == r.MAGIC_BLANK:
                at = len(data)
            elif base + at in good:
                _note(found, data, base, at)
                at += size
                found.end = base + at
            else:
                return found
    return found


def _note(found: Mended, data: bytes, base: int, at: int) -> None:
    (flag,) = struct.unpack_from(">I", data, at + 16)
    (sysflag,) = struct.unpack_from(">I", data, at + 36)
    if flag == LOST_FLAG and sysflag & r.TRANSACTION_MASK == r.ROLLBACK:
        found.fillers.add(base + at)
        (body,) = struct.unpack_from(">i", data, at + 84)
        length = data[at + 88 + body]
        found.topics.add(data[at + 89 + body : at + 89 + body + length].decode())


def items_of(records: Sequence[LogRecord], release: str) -> set[Item]:
    """The items that the IndexFiles have for these records."""
    return {item for record in records for item in record.items(release >= "5.4")}
