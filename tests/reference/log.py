"""A whole commitlog, walked from its first byte to its last.

Where something is not a record it is damage, up to the next place where a record (or a filler of exactly the
right size) stands. If the bad record's own length still agrees with its parts, nothing inside it is
looked at: a body may hold the image of another record. Otherwise every byte after it is tried.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tests.reference import records
from tests.reference.records import Bad, Blank, Record
from tests.reference.settings import Settings

MISSING = "missing-segment"
ORDER = "queue-order"
_MAGICS = re.compile(b"|".join(re.escape(struct.pack(">I", magic)) for magic in (records.MAGIC_V1, records.MAGIC_V2)))


class LogError(ValueError):
    """A commitlog folder that no rebuild should touch: one line with the file."""


@dataclass(frozen=True)
class Segment:
    base: int
    data: bytes


@dataclass(frozen=True)
class Damage:
    """`length` bytes from logical offset `offset` on that hold no record; `segment`: where they begin.

    `sound`: a crash does not leave such bytes, so they are no torn tail. `framed`: its own length holds.
    """

    segment: str
    offset: int
    length: int
    reason: str
    sound: bool = False
    framed: bool = False


@dataclass(frozen=True)
class Log:
    """Every good record in order, all damage, and the torn tail if the log ends in one."""

    records: list[Record]
    damage: list[Damage]
    torn_tail: Damage | None
    short_last_segment: bool
    begins_at_0: bool = False


def merged(damage: list[Damage]) -> list[tuple[int, int]]:
    """Damage as (start, end) with neighbours joined: what two walks must agree on, however they cut it up."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((d.offset, d.offset + d.length) for d in damage):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def read_segments(folders: list[Path], segment_size: int | None) -> tuple[list[Segment], int]:
    """(segments in order, bytes of a full one). Only the last may be shorter. Raises LogError."""
    paths = sorted((p for folder in folders if folder.is_dir() for p in folder.iterdir()), key=lambda p: p.name)
    for path in paths:
        if len(path.name) != 20 or not (path.name.isascii() and path.name.isdigit()):
            raise LogError(f"{path}: not a segment's name")
    segments = [Segment(int(p.name), p.read_bytes()) for p in paths]
    size = segment_size or (len(segments[0].data) if segments else 0)
    expected = segments[0].base if segments else 0
    for path, segment in zip(paths, segments, strict=True):
        gap = segment.base - expected
        if gap < 0 or (gap and gap % size):
            raise LogError(f"{path}: overlaps another segment, or lies off the segments' grid")
        if len(segment.data) > size or (len(segment.data) < size and segment is not segments[-1]):
            raise LogError(f"{path}: {len(segment.data)} bytes, where a segment has {size}")
        expected = segment.base + size
    return segments, size


def walk(segments: list[Segment], size: int, rules: Settings) -> Log:
    """Read the whole log. Do not change what is returned: the last few logs are kept.

    Tests build one log under each policy, and what stands in it is the same under all.
    """
    return _walk(tuple(segments), size, replace(rules, on_damage="fail", queue_order="logical"))


@lru_cache(maxsize=4)
def _walk(segments: tuple[Segment, ...], size: int, rules: Settings) -> Log:
    good: list[Record] = []
    damage: list[Damage] = []
    last_byte = _last_nonzero(segments)
    expected = segments[0].base if segments else 0
    for segment in segments:
        if segment.base > expected:
            damage.append(Damage(f"{expected:020d}", expected, segment.base - expected, MISSING))
        expected = segment.base + size
        met = list(_walk_segment(segment, size, last_byte, rules))
        if _lies_elsewhere(segment, size, met, rules):
            met = [replace(found, sound=True) if isinstance(found, Damage) else found for found in met]
        good += [found for found in met if isinstance(found, Record)]
        damage += _joined([found for found in met if isinstance(found, Damage)])
    kept, torn = _torn_tail(good, damage, last_byte, rules.torn_limit)
    short = bool(segments) and len(segments[-1].data) < size
    return Log(good, kept, torn, short, bool(segments) and segments[0].base == 0)


def _walk_segment(segment: Segment, size: int, last_byte: int, rules: Settings) -> Iterator[Record | Damage]:
    data, base, at = segment.data, segment.base, 0
    while at < len(data) and base + at <= last_byte:
        found = records.parse(data, at, base, base + size, rules)
        if isinstance(found, Blank):
            return
        if isinstance(found, Record):
            yield found
            at += found.size
            continue
        after = at + found.framed if found.framed else _next_record(segment, at + 1, size, rules)
        # Zeros behind the log's last byte are no loss, unless they are the end of a record whose length holds.
        lost = after - at if found.framed else min(after, last_byte + 1 - base) - at
        yield Damage(f"{base:020d}", base + at, lost, found.reason, found.sound, found.framed > 0)
        at = after


def _joined(damage: list[Damage]) -> list[Damage]:
    """Records that follow on each other and do not lie where they say are one place."""
    found: list[Damage] = []
    for one in damage:
        last = found[-1] if found else None
        if last and last.reason == one.reason == records.POSITION and last.offset + last.length == one.offset:
            found[-1] = replace(last, length=last.length + one.length)
        else:
            found.append(one)
    return found


def _lies_elsewhere(segment: Segment, size: int, met: list[Record | Damage], rules: Settings) -> bool:
    """Whether a segment of damage alone holds two records in a row that would be good at one other place."""
    written = len(segment.data.rstrip(b"\0"))
    if not met or not all(isinstance(found, Damage) and not found.sound for found in met):
        return False
    last = met[-1]
    if not isinstance(last, Damage) or last.framed or written > rules.torn_limit:
        return False
    if last.offset + last.length < segment.base + written or last.offset >= segment.base + written:
        return False
    data, rules = segment.data[: rules.torn_limit], replace(rules, crc="body")
    for at in range(len(data) - 7):
        first = _elsewhere(data, at, segment, size, rules)
        if first and first == _elsewhere(data, at + first[0], segment, size, rules, first[0]):
            return True
    return False


def _elsewhere(data: bytes, at: int, segment: Segment, size: int, rules: Settings, told: int = 0) -> tuple[int, int] | None:
    """(`told`, or the size of the record at `at`; how far from there it says to lie), if it is sound but for that."""
    found = records.parse(data, at, segment.base, segment.base + size, rules)
    if not isinstance(found, Bad) or found.reason != records.POSITION or not found.sound:
        return None
    return told or found.framed, found.told - segment.base - at


def _next_record(segment: Segment, start: int, size: int, rules: Settings) -> int:
    """Where next a record stands that is sound in position, length and CRC; else the segment's end.

    A filler is not looked for: a body may hold one that fits, and all behind it would be lost.
    The CRC counts here even where `--crc none` lets it pass elsewhere: nothing else speaks for this place.
    """
    data = segment.data
    rules = replace(rules, crc="body") if rules.crc == "none" else rules
    for match in _MAGICS.finditer(data, start + 4):
        at = match.start() - 4
        found = records.parse(data, at, segment.base, segment.base + size, rules)
        if not isinstance(found, Bad) or found.stands:
            return at
    return len(data)


def _last_nonzero(segments: Sequence[Segment]) -> int:
    """Logical offset of the last byte that is not zero; before the log if there is none."""
    for segment in reversed(segments):
        rest = segment.data.rstrip(b"\0")
        if rest:
            return segment.base + len(rest) - 1
    return -1


def _torn_tail(good: list[Record], damage: list[Damage], last_byte: int, limit: int) -> tuple[list[Damage], Damage | None]:
    """Damage near the log's last byte with no good record after it is what a crash leaves.

    It reaches to that byte, whatever lies between: a filler there ends nothing that is kept.
    """
    end = good[-1].offset + good[-1].size if good else 0
    end = max([end, *(d.offset + 1 for d in damage if d.sound)])
    tail = [d for d in damage if d.offset >= end]
    if not tail or any(d.reason == MISSING for d in tail) or last_byte - tail[0].offset > limit:
        return damage, None
    first = tail[0]
    stop = max(last_byte + 1, *(d.offset + d.length for d in tail))
    torn = Damage(first.segment, first.offset, stop - first.offset, first.reason)
    return damage[: len(damage) - len(tail)], torn
