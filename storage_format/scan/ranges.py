"""Segments of the commitlog, what else may have a segment's name, and the ranges that segments are scanned in."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_reindex.storage_format import showing
from rocketmq_reindex.storage_format.queue.units import UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r

# ---------------------------------------------------------------------------------------------------------------- foreign files
# Say what a file is that has the name of a segment and begins with no record of RocketMQ.

HEAD: Final = 4096
"""Bytes at the start of a segment that are looked at."""
_KNOWN: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK", "zip"),
    (b"PAR1", "Parquet"),
    (b"\x7fELF", "a program"),
)
_TAR_AT: Final = 257
_MAGICS: Final = (r.MAGIC_V1, r.MAGIC_V2, r.MAGIC_BLANK)
_UNIT_OF: Final = 1 << 26
"""Bytes of the longest record that a unit is taken to name."""


def foreign(head: bytes) -> str:
    """Return what a segment begins with, by its first HEAD bytes; "" for a record, a filler or nothing but zeros."""
    if not any(head) or int.from_bytes(head[r.AT_MAGIC : r.AT_MAGIC + 4], "big", signed=True) in _MAGICS:
        return ""
    for magic, name in _KNOWN:
        if head.startswith(magic):
            return f"begins with {magic.hex()}: {name}?"
    shown = f"begins with {head[:4].hex()}"
    if head[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return f"{shown}: tar?"
    if _has_units(head):
        return f"{shown}: a ConsumeQueue file?"
    if has_entry(head):
        return f"{shown}: a log of DLedger?"
    if _is_text(head):
        return f"{shown}: text?"
    return shown


def _has_units(head: bytes) -> bool:
    """Return whether it looks like a ConsumeQueue file: two units of records, the later one behind the earlier."""
    if len(head) < 2 * UNIT_SIZE:
        return False
    (first, size, _), (second, second_size, _) = UNIT_LAYOUT.iter_unpack(head[: 2 * UNIT_SIZE])
    if first < 0 or not r.RECORD_MIN <= size <= _UNIT_OF:
        return False
    is_last = not any(head[UNIT_SIZE : 2 * UNIT_SIZE])
    return is_last or (second >= first + size and r.RECORD_MIN <= second_size <= _UNIT_OF)


def has_entry(head: bytes) -> bool:
    """Return whether it begins with an entry of DLedger: its kind, its own size, and at the header's end that of its body."""
    if len(head) < r.ENTRY_HEAD:
        return False
    kind, size, *_, body = r.ENTRY_LAYOUT.unpack_from(head)
    return bool(r.ENTRY_NORMAL <= kind <= r.ENTRY_LAST_KIND and size == r.ENTRY_HEAD + body)


def _is_text(head: bytes) -> bool:
    """Return whether it is UTF-8 without control characters, up to the zeros at its end."""
    try:
        # The head may end inside of a character.
        text = head.rstrip(b"\0").decode("utf-8", "strict" if len(head) < HEAD else "ignore")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\r\n" for char in text)


# ----------------------------------------------------------------------------------------------------------------------- ranges
# Segments of the commitlog, the ranges that they are scanned in, and what a scan says of one range.
#
# A summary is all that the driver sees of the records of a range.

TORN_TAIL_MAX: Final = 16 << 20
"""Damage with no good record after it, at most so far before the last byte that is not zero, is a torn tail."""


@dataclass(frozen=True)
class Segment:
    """One file of the commitlog; offsets are absolute. ``data_end`` is below ``segment_end`` when the file is short.

    ``lead`` is the bytes in front of each record: those of an entry's header in a file of DLedger's log, else 0.
    """

    name: str
    path: str
    start: int
    data_end: int
    segment_end: int
    lead: int = 0

    def part(self, number: int, low: int, high: int, *, known: bool, before: Sequence[int] = ()) -> RangeSpec:
        """Return the range [low, high) of it; the rest as in ``RangeSpec``."""
        return RangeSpec(
            number, self.path, self.start, self.segment_end, self.data_end, low, high, known, self.lead, tuple(before)
        )


@dataclass(frozen=True)
class Hole:
    """A stretch of the log that is no good record; ``offset`` is absolute."""

    segment: str
    offset: int
    length: int
    reason: str

    @property
    def text(self) -> str:
        """Where it lies in its segment, and why it is damage."""
        return f"offset {self.offset}, {showing.counted(self.length, 'byte')}: {self.reason}"


@dataclass(frozen=True)
class RangeSpec:
    """Bytes [low, high) of one segment. ``known``: a record or the segment starts at ``low``; else the first one is searched
    for.

    ``data_end`` is where the segment's file ends, ``segment_end`` where it would end whole. All offsets are absolute. ``lead``
    is that of the segment, ``before`` the fields of ``EntryPlace`` of the entry in front of ``low``, nothing where that is not
    known.
    """

    number: int
    path: str
    segment_start: int
    segment_end: int
    data_end: int
    low: int
    high: int
    known: bool
    lead: int = 0
    before: Sequence[int] = ()


def cut_ranges(segments: Sequence[Segment], size: int, until: int) -> list[RangeSpec]:
    """Return ranges of at most ``size`` bytes, of the records that begin below the absolute offset ``until``."""
    specs: list[RangeSpec] = []
    for segment in segments:
        # What stands in front of a record belongs to it.
        high = min(segment.data_end, until - segment.lead)
        for low in range(segment.start, high, size):
            specs.append(segment.part(len(specs), low, min(low + size, high), known=low == segment.start))
    return specs


@dataclass
class RangeSummary:
    """One scanned range. Offsets that do not exist are -1; a hole is [offset, length, code of ``record.layout``]."""

    number: int
    low: int
    high: int
    known: bool
    first: int = -1
    """the first record that starts in the range"""
    end: int = -1
    """where the next record should start; -1 when the walk ended in damage or zeros (``tail``)"""
    tail: int = -1
    """the first byte that is no record, with no record after it in the range"""
    tail_code: int = 0
    tail_length: int = 0
    """bytes of the damage at ``tail`` where they are known, as for a whole record with a wrong CRC"""
    after_tail: int = -1
    """stop: the next good record after the damage at which the walk was stopped"""
    last_nonzero: int = -1
    """last byte that is not zero at or after ``tail``, or in the filler that ends the walk"""
    later: int = -1
    """first record that is left out: its store time is above --until-time, or it is not committed; the walk ended there"""
    uncommitted: int = -1
    """the index of the entry of DLedger that is not committed, where ``later`` is one"""
    entries: list[int] = field(default_factory=list)
    """in a log of DLedger: index, term, store time and offset of the first good entry, then those of the last and its end"""
    holes: list[list[int]] = field(default_factory=list)
    lost: list[list[int]] = field(default_factory=list)
    """[offset, length] of each stretch of fillers that a repair put in the place of lost bytes, apart from each other"""
    last_good: int = -1
    last_sound: int = -1
    """last record that was refused though its frame and its body's CRC are right: never part of a torn tail"""
    elsewhere: list[int] = field(default_factory=list)
    """how far the physical offsets of such records are from where they lie: the first two distances"""
    records: int = 0
    unit_records: int = 0
    excluded: int = 0
    units: int = 0
    batch_units: int = 0
    items: int = 0
    tag_items: int = 0
    """items of TAGS, which count among ``items``, too"""
    runs: int = 0
    """runs of consecutive queue offsets, from which the order of queues is decided"""
    queues: int = 0
    first_dispatched: int = -1
    last_dispatched: int = -1
    last_time: int = 0
    last_unit: int = -1
    """last record that gives a unit"""
    last_unit_time: int = 0
    time_min: int = 0
    time_max: int = 0
    waiting: int = -1
    """first record dispatched after the last one with items (or at all, when none has items)"""
    first_item_maker: int = -1
    """first record dispatched in the range up to and including the one of its first item"""
    windows: list[list[int]] = field(default_factory=list)
    """[item, window]: where the highest time window so far rises, in the range's own count"""
    inner_batches: int = 0
    batches_refused: int = 0
    batches_empty: int = 0
    lmq_slash: int = 0
    lmq_no_file: int = 0
    lmq_again: int = 0
    lmq_malformed: int = 0
    unusual_names: list[str] = field(default_factory=list)
    unmatched_globs: dict[str, list[str]] | None = None
    """globs of topics that match none of the range, or of others that the same task scanned, each with names near it; None
    where that is not known"""
    digests: dict[str, str] = field(default_factory=dict)
    block: str = ""
    """the path of the staged index items"""
    makers: int = 0
    """entries of the block's table of makers"""

    def to_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> RangeSummary:
        """Return the inverse of ``to_json``."""
        return cls(**json.loads(text))


def may_lie_elsewhere(summaries: Sequence[RangeSummary], start: int) -> bool:
    """Return whether a segment looks like a torn tail only because its records name other offsets than where they lie.

    ``summaries`` are those of its ranges from its ``start`` on. True where they end as a torn tail does, and hold no record
    that is good or refused as one: behind a first record that is damaged, a search that asks for their offsets does not find
    them.
    """
    last = max(s.last_nonzero for s in summaries)
    if not start <= last < start + TORN_TAIL_MAX or summaries[-1].tail < 0:
        return False
    return all(max(s.last_good, s.last_sound, s.after_tail, s.later) < 0 for s in summaries)
