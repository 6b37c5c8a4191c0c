"""The log of a store at a glance: its segments, each with its first and last record, and a sample of its records.

No segment is read whole. What is counted stands apart from what is estimated.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import neighbours
from rocketmq_reindex.jobs.browsing.options import Facts
from rocketmq_reindex.jobs.querying import question, shown
from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.message import Message, record_heads
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.times import show_time

SEGMENTS: Final = 100
"""segments of a page that are looked into"""
ON_THE_LINE: Final = 1000
"""segments of a page that are drawn"""
DAMAGE_TOLD: Final = 5
"""damaged stretches of a segment"""
COUNTED, PARTS = 64, 4
"""records that are passed one by one from the start of a segment, and of each of so many parts of it"""
PLACES, OF_A_PLACE = 24, 50
"""places of the log from which records are sampled, and records of each"""
MEANT_MAX: Final = 16 << 10
"""bytes of a body in which the meaning of a record is looked for: a page has many"""
# --------------------------------------------------------------------------------------------------------------------- segments
# Each segment by its first record, its last one, and some between.


def segments(store_roots: Sequence[str], first: int | None) -> Facts:
    """Return the segments from the one that holds the offset ``first`` on, and a line of many more of them.

    Raises InputError.
    """
    warnings = list[str]()
    notes = Notes(warnings.append, warnings.append)
    with contextlib.closing(contents.StoreLog(store_roots, notes)) as log:
        every = log.segments
        at = max(0, bisect_right([segment.start for segment in every], first or 0) - 1)
        low = at // ON_THE_LINE * ON_THE_LINE
        rows = [_row(log, number) for number in range(at, min(len(every), at + SEGMENTS))]
        line = [_drawn(log, number) for number in range(low, min(len(every), low + ON_THE_LINE))]
        notes.close()
    for drawn, row in zip(line[at - low :], rows, strict=False):
        drawn |= {"fill": row["fill"], "damaged": bool(row["damage"])}
    behind = at + SEGMENTS
    return {
        "segments": rows, "line": line, "count": len(every), "bytes": sum(segment.size for segment in every),
        "missing": sum(max(0, _gap(log, number)) for number in range(len(every))), "knownDamage": 0,
        "next": every[behind].start if behind < len(every) else None,
        "previous": every[max(0, at - SEGMENTS)].start if at else None, "warnings": warnings,
    }  # fmt: skip


def with_damage(found: Facts, damage: Sequence[tuple[int, int, str]]) -> Facts:
    """Return the same with what else is known of the log: stretches by their first byte, the byte behind their last, and what
    is wrong. Of many in one segment the first are told."""
    for row, texts in zip(found["segments"], _damage_of(found["segments"], damage), strict=True):
        more = [_wrong(None, f"and {len(texts) - DAMAGE_TOLD:,} more")] if len(texts) > DAMAGE_TOLD else []
        row["damage"] = [*texts[:DAMAGE_TOLD], *more] or row["damage"]
    for drawn, texts in zip(found["line"], _damage_of(found["line"], damage), strict=True):
        drawn["damaged"] = drawn["damaged"] or bool(texts)
    return found | {"knownDamage": len(damage)}


def _damage_of(rows: Sequence[Facts], damage: Sequence[tuple[int, int, str]]) -> list[list[Facts]]:
    starts, told = [row["firstOffset"] for row in rows], [list[Facts]() for _ in rows]
    for begin, end, why in damage:
        number = max(0, bisect_right(starts, begin) - 1)
        while number < len(rows) and starts[number] < max(end, begin + 1):
            if begin < starts[number] + rows[number]["bytes"]:
                told[number].append(_wrong(begin, f"offset {begin}, {counted(end - begin, 'byte')}: {why}"))
            number += 1
    return told


def _gap(log: contents.StoreLog, number: int) -> int:
    """Return the bytes of the log that are in no segment before this one; below 0 where it begins inside of that."""
    segment, before = log.segments[number], log.segments[number - 1] if number else None
    return 0 if before is None else segment.start - before.start - before.size


def _drawn(log: contents.StoreLog, number: int) -> Facts:
    segment = log.segments[number]
    return {
        "firstOffset": segment.start, "bytes": segment.size, "gapBefore": _gap(log, number), "fill": None, "damaged": False,
    }  # fmt: skip


def _row(log: contents.StoreLog, number: int) -> Facts:
    segment = log.segments[number]
    found = _look(log, segment)
    used = None if found.end is None else found.end - segment.start
    return {
        "file": escape(files.base(segment.path)), "place": escape(segment.path), "bytes": segment.size,
        "firstOffset": segment.start, "gapBefore": _gap(log, number), "used": used,
        "fill": used / segment.size if used is not None and segment.size else None,
        "firstRecord": found.first.phy_offset if found.first else None,
        "firstTime": show_time(found.first.store_time) if found.first else None,
        "lastRecord": found.last.phy_offset if found.last else None,
        "lastTime": show_time(found.last.store_time) if found.last else None,
        "records": found.records, "estimated": found.estimated, "damage": found.wrong,
    }  # fmt: skip


@dataclass
class _Look:
    """``end`` is the offset behind the last record that was found, ``records`` how many there are, or may be; None: not known.

    ``wrong`` says what stands where a record should, and where."""

    first: Message | None = None
    last: Message | None = None
    end: int | None = None
    records: int | None = None
    estimated: bool = False
    wrong: list[Facts] = field(default_factory=list)


def _look(log: contents.StoreLog, segment: contents.SegmentFile) -> _Look:
    stop = segment.start + segment.size
    walk = contents.RecordWalk(log, segment.start, stop, COUNTED)
    seen = list(walk)
    found = _Look(first=seen[0] if seen else None)
    is_last = segment == log.segments[-1]
    if walk.at >= stop or (walk.stop == contents.NOTHING and seen and not _bytes_behind(log, segment, walk.at)):
        # Counted to the end: to the BLANK, or to zeros that nothing follows.
        found.last, found.records = seen[-1] if seen else None, len(seen)
        found.end = segment.start if not seen else seen[-1].phy_offset + seen[-1].size
        return found
    if not seen and walk.stop == contents.NOTHING and not _bytes_behind(log, segment, segment.start):
        # A broker makes the next segment ahead.
        found.end, found.records = segment.start, 0
        if not is_last and not _all_zeros(log, segment):
            found.wrong = [_wrong(None, "zeros from its first byte on, and records behind it")]
        return found
    if walk.stop:
        found.wrong = [_wrong(walk.at, f"offset {walk.at}: {walk.stop}")]
    # Damage behind it may hide what follows.
    found.last = neighbours.last_ended(log, segment, stop, segment.start + contents.written(log, segment))
    if found.last is None:
        return found
    found.end = found.last.phy_offset + found.last.size
    for part in range(1, PARTS):
        # A long record is met more often than a short one: what follows it counts.
        middle = log.around(segment.start + (found.end - segment.start) * part // PARTS)
        if middle is not None:
            seen += contents.RecordWalk(log, middle.phy_offset + middle.size, stop, COUNTED)
    counted = sum(message.size for message in seen)
    found.records = round((found.end - segment.start) * len(seen) / counted) if counted else None
    found.estimated = True
    return found


def _wrong(offset: int | None, text: str) -> Facts:
    return {"offset": offset, "text": text}


def _all_zeros(log: contents.StoreLog, segment: contents.SegmentFile) -> bool:
    """Return whether each segment from this one on begins with zeros."""
    return all(log.message(each.start) == contents.NOTHING for each in log.segments if each.start >= segment.start)


def _bytes_behind(log: contents.StoreLog, segment: contents.SegmentFile, at: int) -> bool:
    """Return whether something else than zeros stands behind an offset, as its next bytes and a binary search tell."""
    try:
        near = any(log.pages(segment).read(at - segment.start, contents.BLOCK))
    except (OSError, InputError):
        return True
    return near or contents.written(log, segment) > at - segment.start


# ----------------------------------------------------------------------------------------------------------------------- sample
# Records from places that are evenly spread over the bytes of the log.


@dataclass
class LogPlace:
    """Records from one place of the log on, up to the next place, or so many of them."""

    offset: int
    span: int
    """bytes of the log from this place to the next one"""
    time: int | None = None
    """when its first record was stored, in milliseconds since 1970"""
    whole: bool = False
    """whether all records up to the next place were passed"""
    records: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    """bytes of the records by topic"""

    def share(self, topic: str) -> float:
        """Return the bytes that a topic has up to the next place, as the sample tells."""
        total = self.sizes.total()
        return self.sizes[topic] if self.whole or not total else self.span * self.sizes[topic] / total

    def messages(self, topic: str) -> float:
        """Return the records that a topic has up to the next place, as the sample tells."""
        total = self.sizes.total()
        return self.records[topic] if self.whole or not total else self.span * self.records[topic] / total


def sample(log: contents.StoreLog) -> list[LogPlace]:
    """Return a sample of the log: its places in order. Of a short log every record is in it."""
    last = contents.last_record(log)
    stop = log.end if last is None else last.phy_offset + last.size
    sizes = [max(0, min(segment.start + segment.size, stop) - segment.start) for segment in log.segments]
    total, places = sum(sizes), list[LogPlace]()
    for number in range(PLACES) if total else ():
        at, end = total * number // PLACES, total * (number + 1) // PLACES
        if end > at:
            places.append(_place(log, _offset(log, sizes, at), _offset(log, sizes, end - 1) + 1, end - at))
    return places


def _offset(log: contents.StoreLog, sizes: Sequence[int], at: int) -> int:
    """Return the offset of a byte of the log that is counted over its segments, without what is missing between them."""
    for segment, size in zip(log.segments, sizes, strict=True):
        if at < size:
            return segment.start + at
        at -= size
    return log.end


def _place(log: contents.StoreLog, low: int, high: int, span: int) -> LogPlace:
    place = LogPlace(low, span)
    walk = contents.RecordWalk(log, _first_from(log, low), high, OF_A_PLACE)
    for message in walk:
        if message.phy_offset >= high:
            # What precedes it, of a log of DLedger, lies in this part.
            place.whole = True
            return place
        place.time = message.store_time if place.time is None else place.time
        place.records[message.topic] += 1
        place.sizes[message.topic] += message.size
    place.whole = walk.at >= high
    return place


def _first_from(log: contents.StoreLog, low: int) -> int:
    """Return where the first record begins at an offset or behind it, as far as one is near; else the next segment."""
    if isinstance(log.message(low), Message):
        return low
    if (around := log.around(low)) is not None:
        return around.phy_offset + around.size
    segment = log.segment_of(low)
    if isinstance(segment, contents.SegmentFile):
        with contextlib.suppress(OSError, InputError):
            near = log.pages(segment).read(low - segment.start, neighbours.WINDOWS[0])
            for begin in record_heads(near, low)[: neighbours.CANDIDATES]:
                if begin >= low and isinstance(log.message(begin), Message):
                    return begin
    return next((each.start for each in log.segments if each.start > low), log.end)


def last_time(log: contents.StoreLog) -> int | None:
    """Return when the last record of the log was stored, in milliseconds since 1970; None where none is found."""
    last = contents.last_record(log)
    return None if last is None else last.store_time


# ---------------------------------------------------------------------------------------------------------------------- meaning


def meant(message: Message, log: contents.StoreLog, delays: tuple[int, ...]) -> str:
    """Return what a record of the broker's own means, in words. ``delays`` are the milliseconds of each delay level."""
    body = b""
    if meaning.needs_body(message):
        read = shown.read_body(message, log, MEANT_MAX, Notes.silent())
        if not read.whole:
            return "its page says what it means: its body is long, or cannot be read"
        body = read.data
    return str(question.meaning_row(meaning.meaning(message, body, delays))["text"])
