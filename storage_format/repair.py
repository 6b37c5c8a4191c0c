"""Records and fillers that stand for lost bytes in a repaired log, and that a broker accepts."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment

# ----------------------------------------------------------------------------------------------------------------------- damage
# The stretches of a log that are to be mended, segment by segment, from the holes that a scan has found.

SHORT: Final = "segment file is too short"


class DamagedPlace(NamedTuple):
    """One hole of a damaged stretch: absolute offset, bytes, and why it is no good record."""

    offset: int
    length: int
    reason: str


class RecordAt(NamedTuple):
    """A good record: its segment and its absolute offset.

    ``anchor`` is a good record of the segment at or before it, from which its neighbours may be found; -1 for none.
    """

    segment: Segment
    offset: int
    anchor: int = -1

    @classmethod
    def of_fields(cls, fields: Sequence[Any] | None) -> RecordAt | None:
        """Return the record with these fields, in which objects are lists (``udfs.handover``); None for none."""
        return cls(Segment(*fields[0]), *fields[1:]) if fields else None


@dataclass(frozen=True)
class SegmentDamage:
    """A stretch [offset, offset + length) of one segment that holds no good record. All offsets are absolute.

    The path of a missing segment is "".
    """

    offset: int
    length: int
    segment: Segment
    places: tuple[DamagedPlace, ...]
    anchors: tuple[int, ...] = ()
    """good records of the segment that begin before ``offset``, ascending, with good records from each up to there"""
    before: RecordAt | None = None
    """the last good record of the segments before"""
    after: RecordAt | None = None
    """the first good record of the segments behind"""
    ends_log: bool = False
    """whether nothing follows in the segments behind, good or damaged"""

    @property
    def end(self) -> int:
        """The offset behind the stretch."""
        return self.offset + self.length

    @property
    def reason(self) -> str:
        """Why it is damage: each reason once."""
        return reason_of(self.places)

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> SegmentDamage:
        """Return the damage with these fields, in which tuples and objects are lists (``udfs.handover``)."""
        damage = cls(*fields)
        return replace(
            damage,
            segment=Segment(*fields[2]),
            anchors=tuple(damage.anchors),
            places=tuple(DamagedPlace(*place) for place in damage.places),
            before=RecordAt.of_fields(damage.before),
            after=RecordAt.of_fields(damage.after),
        )


def reason_of(places: Iterable[DamagedPlace]) -> str:
    """Return why the places are no good records: each reason once."""
    return "; ".join(dict.fromkeys(place.reason for place in places))


def whole_segments(segments: Sequence[Segment]) -> list[Segment]:
    """Return all segments from the first to the last, whole: the missing ones between them, too, with the path ""."""
    whole: list[Segment] = []
    for segment in segments:
        size = segment.segment_end - segment.start
        while whole and whole[-1].segment_end < segment.start:
            start = whole[-1].segment_end
            whole.append(Segment(f"{start:020d}", "", start, start, start + size))
        whole.append(segment)
    return whole


def damages(holes: Iterable[Hole], whole: Sequence[Segment], ends: Mapping[int, int]) -> list[SegmentDamage]:
    """Return the damaged stretches of a log, in order: neighbouring holes of a segment are one.

    ``whole`` are its segments (``whole_segments``). The end of a file that is too short is damage, unless the log ends there
    or before, or its records lie before it: ``ends`` has where those of each segment end, by its start; its filler counts as
    one.
    """
    of_segment: dict[int, list[DamagedPlace]] = {segment.start: [] for segment in whole}
    log_end = max((end for start, end in ends.items() if end > start), default=0)
    for start, place in _in_segments(holes, whole):
        of_segment[start].append(place)
        log_end = max(log_end, place.offset + place.length)
    for segment in whole[:-1]:
        end = ends.get(segment.start, segment.start)
        if segment.start < log_end and segment.data_end < segment.segment_end and segment.path and end < segment.segment_end:
            of_segment[segment.start].append(DamagedPlace(end, segment.segment_end - end, SHORT))
    return [damage for segment in whole for damage in _joined(segment, sorted(set(of_segment[segment.start])))]


def _in_segments(holes: Iterable[Hole], whole: Sequence[Segment]) -> Iterator[tuple[int, DamagedPlace]]:
    """Yield each hole cut at the borders of segments, with the start of its segment."""
    ordered, number = sorted(holes, key=lambda hole: hole.offset), 0
    for hole in ordered:
        at, end = hole.offset, hole.offset + hole.length
        while whole[number].segment_end <= at:
            number += 1
        inner = number
        while at < end and inner < len(whole):
            stop = min(end, whole[inner].segment_end)
            yield whole[inner].start, DamagedPlace(at, stop - at, hole.reason)
            at, inner = stop, inner + 1


def _joined(segment: Segment, places: list[DamagedPlace]) -> Iterator[SegmentDamage]:
    """Yield the places of a segment, those that touch as one stretch."""
    joined: list[DamagedPlace] = []
    end = -1
    for place in places:
        if joined and place.offset > end:
            yield _damage(segment, joined, end)
            joined = []
        joined.append(place)
        end = max(end, place.offset + place.length)
    if joined:
        yield _damage(segment, joined, end)


def _damage(segment: Segment, places: list[DamagedPlace], end: int) -> SegmentDamage:
    low = places[0].offset
    return SegmentDamage(low, end - low, segment, tuple(places))


# ---------------------------------------------------------------------------------------------------------------------- records
# Records that stand where bytes of the log are lost. A broker's recovery accepts them; its dispatch passes over them.
#
# A lost-record filler is a rolled-back transaction: such a record gives no unit (``CommitLogDispatcherBuildConsumeQueue``) and
# no index item (``IndexService.buildIndex``), in 4.9 to 5.5. FLAG, which is the application's and which no broker reads, says
# that it is ours.

LOST_FLAG: Final = r.LOST_FLAG
"""FLAG of a lost-record filler and of a tombstone"""
LOST_TOPIC: Final = b"rmq_sys_reindex_lost"
"""The topic of a lost-record filler; a small one has the first characters of it, and at least one."""
LOST_TAG: Final = b"__LOST__"
"""TAGS of a tombstone"""
_TAGS: Final = b"TAGS\x01" + LOST_TAG + b"\x02"
PIECE_MAX: Final = 4 << 20
"""Bytes of one filler: ``maxMessageSize`` of a broker is 4 MiB, and some readers take no more"""
_DUP_INFO: Final = b"DUP_INFO\x010_0\x02"
"""``MessageConst.DUP_INFO`` as ``checkMessageAndReturnSize`` wants it with duplicationEnable: two parts and one ``_``"""
_CRC_NAME: Final = b"__CRC32#\x01"
_HOST: Final = bytes([127, 0, 0, 1, 0, 0, 0, 0])
_FIXED: Final = r.RECORD_MIN + 1
"""Bytes of a record with a topic of one character, without body and properties."""


@dataclass(frozen=True)
class Demands:
    """What the records of a log carry, and a broker may therefore demand of each."""

    property_crc: bool = False
    """``__CRC32#`` over the whole record (``enabledAppendPropCRC``, ``forceVerifyPropCRC``)"""
    dup_info: bool = False
    """``DUP_INFO`` (``duplicationEnable``)"""

    @property
    def size(self) -> int:
        """Bytes of the properties that are demanded."""
        return (len(_DUP_INFO) if self.dup_info else 0) + (r.CRC_PROPERTY_SIZE if self.property_crc else 0)

    @property
    def filler_min(self) -> int:
        """Bytes of the smallest filler."""
        return _FIXED + self.size


def record(
    offset: int, store_time: int, demands: Demands, *, topic: bytes, body_size: int = 0, sys_flag: int = 0, queue_id: int = 0,
    queue_offset: int = 0, properties: bytes = b"",
) -> bytes:  # fmt: skip
    """Return a V1 record with a body of zeros, or a V2 record where the topic is longer than 127 bytes.

    ``offset`` is its physical offset in bytes, ``store_time`` in milliseconds since 1970, ``properties`` end with 0x02 if there
    are any. Raises ValueError where topic or properties are too long for a record.
    """
    long_topic = len(topic) > r.TOPIC_V1_MAX
    properties += _DUP_INFO if demands.dup_info else b""
    props_size = len(properties) + (r.CRC_PROPERTY_SIZE if demands.property_crc else 0)
    if props_size > 0x7FFF or len(topic) > 0x7FFF:
        raise ValueError("topic or properties too long for a record")
    body = bytes(body_size)
    topic_size = struct.pack(">h" if long_topic else ">B", len(topic))
    total = r.HEADER_SIZE + body_size + len(topic_size) + len(topic) + 2 + props_size
    head = r.HEAD_LAYOUT.pack(
        total, r.MAGIC_V2 if long_topic else r.MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, queue_id, LOST_FLAG, queue_offset,
        offset, sys_flag, store_time,
    )  # fmt: skip
    tail = r.TAIL_LAYOUT.pack(0, 0, body_size)
    data = b"".join((
        head, _HOST, struct.pack(">q", store_time), _HOST, tail, body, topic_size, topic, struct.pack(">h", props_size),
        properties,
    ))  # fmt: skip
    return data + _crc_property(data) if demands.property_crc else data


def _crc_property(data: bytes) -> bytes:
    """Return ``__CRC32#`` of a record without it: ten digits, the lowest first (``MessageDecoder.createCrc32``)."""
    value = zlib.crc32(data) & 0x7FFFFFFF
    return _CRC_NAME + f"{value:010d}"[::-1].encode() + b"\x02"


def filler(offset: int, size: int, store_time: int, demands: Demands) -> bytes:
    """Return one lost-record filler of exactly ``size`` bytes. Raises ValueError below ``demands.filler_min``."""
    topic = LOST_TOPIC[: size - demands.filler_min + 1]
    if not topic or size < demands.filler_min:
        raise ValueError(f"no record has {size} bytes: at least {demands.filler_min}")
    body_size = size - demands.filler_min + 1 - len(topic)
    return record(offset, store_time, demands, topic=topic, body_size=body_size, sys_flag=r.TRANSACTION_ROLLBACK)


def small_filler(demands: Demands) -> int:
    """Return the bytes of a filler without a body: the smallest one that names its topic in full."""
    return demands.filler_min + len(LOST_TOPIC) - 1


def fillers(offset: int, size: int, store_time: int, demands: Demands) -> Iterator[bytes]:
    """Yield fillers of exactly ``size`` bytes in all, from physical offset ``offset`` on, each of at most ``PIECE_MAX`` bytes.

    Raises ValueError below ``demands.filler_min``.
    """
    end = offset + size
    while offset < end:
        remaining = end - offset
        # What is left for the last one must be enough for a record.
        piece = remaining if remaining <= PIECE_MAX else min(PIECE_MAX, remaining - demands.filler_min)
        yield filler(offset, piece, store_time, demands)
        offset += piece


def blank(size: int) -> bytes:
    """Return the head of the filler of a segment's last ``size`` bytes (``CommitLog.BLANK_MAGIC_CODE``); zeros follow it.

    Behind the eight bytes that a broker reads stands LOST_FLAG, where it has room: where it has none, no record had.
    Raises ValueError where ``size`` is too small for it.
    """
    if size < r.FILLER_MIN:
        raise ValueError(f"{size} bytes: a segment's filler has at least {r.FILLER_MIN}")
    head = struct.pack(">ii", size, r.MAGIC_BLANK)
    return head + struct.pack(">i", LOST_FLAG) if size >= r.LOST_BLANK_MIN else head


def tombstone_min(topic: bytes, demands: Demands) -> int:
    """Return the bytes of a tombstone of that topic without a body."""
    return _FIXED - 1 + (1 if len(topic) > r.TOPIC_V1_MAX else 0) + len(topic) + len(_TAGS) + demands.size


def tombstone(
    offset: int, store_time: int, demands: Demands, topic: bytes, queue_id: int, queue_offset: int, size: int = 0
) -> bytes:  # fmt: skip
    """Return an ordinary record that stands at a queue offset whose message is lost (TAGS ``__LOST__``).

    Its body is as many zeros as it takes to have ``size`` bytes, by default none. Raises ValueError below ``tombstone_min``.
    """
    least = tombstone_min(topic, demands)
    if size and size < least:
        raise ValueError(f"no tombstone of this topic has {size} bytes: at least {least}")
    return record(
        offset, store_time, demands, topic=topic, body_size=max(size - least, 0), queue_id=queue_id, queue_offset=queue_offset,
        properties=_TAGS,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------- pieces
# What stands in a repaired segment in the place of damage: pieces, each a stretch of bytes that is made in one way.

COPY: Final = "copy"
FILLER: Final = "filler"
BLANK: Final = "blank"
TOMBSTONE: Final = "tombstone"


@dataclass(frozen=True)
class Piece:
    """Bytes [low, high) of the log, absolute, and how they are made.

    ``copy``: from the file ``path`` of a segment that begins at ``start``. ``filler``: lost-record fillers with the store time
    ``time``. ``blank``: the filler of a segment's end. ``tombstone``: one record of ``topic`` (its bytes in hex), ``queue`` and
    ``queue_offset``.
    """

    kind: str
    low: int
    high: int
    path: str = ""
    start: int = 0
    time: int = 0
    property_crc: bool = False
    dup_info: bool = False
    topic: str = ""
    queue: int = 0
    queue_offset: int = 0
    range: int = -1
    """number of the range of changed bytes that it is of; -1: it is of the old segment"""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.high - self.low

    @property
    def demands(self) -> Demands:
        """What its records carry."""
        return Demands(self.property_crc, self.dup_info)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Piece:
        """Return the piece with these fields."""
        return cls(**fields)

    def made(self) -> Iterator[bytes]:
        """Yield the bytes of a piece that is no copy; zeros follow up to ``high``. Raises ValueError where it has no room."""
        if self.kind == FILLER:
            yield from fillers(self.low, self.size, self.time, self.demands)
        elif self.kind == BLANK:
            yield blank(self.size)
        elif self.kind == TOMBSTONE:
            topic = bytes.fromhex(self.topic)
            yield tombstone(self.low, self.time, self.demands, topic, self.queue, self.queue_offset, self.size)


def lost_pieces(low: int, high: int, segment: tuple[int, int], time: int, demands: Demands) -> list[Piece] | None:
    """Return the pieces that stand for the lost bytes [low, high); None where they are too few for any.

    ``segment`` is (start, end) of the segment. Up to its end stands the filler of a segment's end, which a broker passes over
    without reading it. But a recovery looks for the first record of a segment (``CommitLog.isMappedFileMatchedRecover``): a
    segment that is lost as a whole begins with one.
    """
    start, end = segment

    def piece(kind: str, at: int, stop: int) -> Piece:
        return Piece(kind, at, stop, time=time, property_crc=demands.property_crc, dup_info=demands.dup_info)

    size, least = high - low, demands.filler_min
    if high < end:
        return [piece(FILLER, low, high)] if size >= least else None
    if low > start:
        return [piece(BLANK, low, high)] if size >= r.FILLER_MIN else None
    first = low + small_filler(demands)
    if high - first >= r.FILLER_MIN:
        return [piece(FILLER, low, first), piece(BLANK, first, high)]
    return [piece(FILLER, low, high)] if size >= least else None


def covered(pieces: Iterable[Piece], low: int, high: int, path: str, start: int) -> Iterator[Piece]:
    """Yield pieces for all of [low, high): ``pieces``, in order, and copies of the file ``path`` between them."""
    at = low
    for piece in pieces:
        if at < piece.low:
            yield Piece(COPY, at, piece.low, path, start)
        yield piece
        at = piece.high
    if at < high:
        yield Piece(COPY, at, high, path, start)
