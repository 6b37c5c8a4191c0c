"""One message of the log as its fields, in plain Python, for looking at a few. The layout: ``record.layout``.

A record is checked as the record loop does it (``frame.check_record``), except for its CRCs: the body is not read.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.layouts import INT16_MAX, java_text
from rocketmq_reindex.storage_format.record import layout as r

Read = Callable[[int, int], bytes]
"""(byte counted from the record's first, bytes wanted) -> those bytes, fewer at the file's end"""

FLAG_COMPRESSED: Final = 0x01
COMPRESSION_BITS: Final = 0x700
"""of SYSFLAG: how the body is compressed"""
FLAG_MULTI_TAGS: Final = 0x02
FLAG_NEED_UNWRAP: Final = 0x40
ZLIB, LZ4, ZSTD, UNKNOWN = "zlib", "lz4", "zstd", "unknown"
_COMPRESSION: Final = {0: ZLIB, 1: LZ4, 2: ZSTD, 3: ZLIB}
"""``CompressionType.findByValue`` of bits 8 to 10 of SYSFLAG. A 0 was written before there was a choice."""

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_MAGIC: Final = b"|".join(re.escape(_INT32.pack(magic)) for magic in (r.MAGIC_V1, r.MAGIC_V2))
_LONGEST_HEADER: Final = r.HEADER_SIZE + 2 * r.IPV6_EXTRA
_FIRST_READ: Final = 4096


def compression_of(sys_flag: int) -> str | None:
    """Return how a body with this SYSFLAG is compressed; None where it is not."""
    return _COMPRESSION.get(sys_flag >> 8 & 7, UNKNOWN) if sys_flag & FLAG_COMPRESSED else None


@dataclass(frozen=True)
class Host:
    """An address of 4 or 16 bytes, and a port."""

    address: bytes
    port: int


@dataclass(frozen=True)
class Message:
    """The fields of a record. Times are milliseconds since 1970; ``phy_offset`` is the record's absolute offset in the log."""

    phy_offset: int
    size: int
    version: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_time: int
    born_host: Host
    store_time: int
    store_host: Host
    reconsume_times: int
    prepared_offset: int
    body_at: int
    """byte of the record at which the body begins"""
    body_size: int
    topic: str
    properties: dict[str, str]

    @property
    def unique_key(self) -> str | None:
        """UNIQ_KEY, which clients call the message id."""
        return self.properties.get("UNIQ_KEY")

    @property
    def keys(self) -> list[str]:
        """KEYS as the broker splits it (``IndexService.buildIndex``)."""
        return [key for key in self.properties.get("KEYS", "").split(" ") if key]

    @property
    def tags(self) -> str | None:
        """TAGS, from which the tagsCode comes."""
        return self.properties.get("TAGS")

    @property
    def message_id(self) -> str:
        """``MessageDecoder.createMessageId``: address, port and offset as hex."""
        return (self.store_host.address + _INT32.pack(self.store_host.port) + _INT64.pack(self.phy_offset)).hex().upper()

    @property
    def compression(self) -> str | None:
        """How the body is compressed, None where it is not."""
        return compression_of(self.sys_flag)

    @property
    def message_count(self) -> int:
        """How many queue offsets it takes: more than one only for a batch (``CommitLog.setBatchSizeIfNeeded``)."""
        number = self.properties.get("INNER_NUM", "")
        return int(number) if self.sys_flag & r.FLAG_INNER_BATCH and re.fullmatch("[0-9]{1,5}", number) else 1

    def is_of(self, topic: str) -> bool:
        """Return whether the record is of this topic, or waits for it.

        A client that sends a delayed message, or one in a transaction, gets the id of the record that waits.
        """
        return topic in (self.topic, self.properties.get("REAL_TOPIC"))

    def has_key(self, topic: str, key: str) -> bool:
        """Return whether the broker indexes the record under this key of this topic."""
        return self.topic == topic and (key == self.unique_key or key in self.keys)

    def has_tag(self, topic: str, tag: str) -> bool:
        """Return whether the record is of this topic and its TAGS are this one text."""
        return self.topic == topic and self.tags == tag

    @property
    def is_filler(self) -> bool:
        """Whether the record is no message: a repair put it in the place of lost bytes (``repair``)."""
        return self.sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_ROLLBACK and self.flag == r.LOST_FLAG

    @property
    def is_indexed(self) -> bool:
        """Whether the broker indexes the record: not where it rolls a transaction back (``IndexService.buildIndex``)."""
        return self.sys_flag & r.FLAG_TRANSACTION_MASK != r.TRANSACTION_ROLLBACK


def read_properties(text: str) -> dict[str, str]:
    """Return properties from their text (``MessageDecoder.string2messageProperties``), read as ``record.frame`` says."""
    properties: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, split, value = piece.partition("\x01")
        if name and split and value:
            properties[name] = value
    return properties


def read_message(read: Read, phy_offset: int, room: int) -> Message | int:
    """Return the record at the absolute offset ``phy_offset``, or a code of ``record.layout`` for what stands there instead.

    ``room`` is the bytes from there to the end of the file. GOOD is never returned; ZERO and FILLER are no damage.
    """
    first = read(0, min(room, _FIRST_READ))

    def part(at: int, count: int) -> bytes:
        return first[at : at + count] if at + count <= len(first) else read(at, count)

    if room < r.FILLER_MIN or len(first) < r.FILLER_MIN:
        return r.NO_ROOM
    total, magic = _INT32.unpack_from(first, 0)[0], _INT32.unpack_from(first, 4)[0]
    if total == 0:
        return r.ZERO
    if magic == r.MAGIC_BLANK:
        return r.FILLER
    if magic not in (r.MAGIC_V1, r.MAGIC_V2):
        return r.BAD_MAGIC
    # Fewer bytes than asked for: the file has become shorter.
    if total < r.RECORD_MIN or total > room or len(first) < min(total, _LONGEST_HEADER):
        return r.BAD_SIZE
    _, _, crc, queue_id, flag, queue_offset, position, sys_flag, born_time = r.HEAD_LAYOUT.unpack_from(first)
    born = r.IPV6_SIZE if sys_flag & r.FLAG_BORN_HOST_V6 else r.IPV4_SIZE
    store = r.IPV6_SIZE if sys_flag & r.FLAG_STORE_HOST_V6 else r.IPV4_SIZE
    store_at = r.AT_STORE_TIMESTAMP + born - r.IPV4_SIZE
    body_at = r.HEADER_SIZE + born + store - 2 * r.IPV4_SIZE
    length_size = 1 if magic == r.MAGIC_V1 else 2
    fixed = body_at + length_size + 2
    if total < fixed:
        return r.BAD_LENGTHS
    body_length = _INT32.unpack_from(first, body_at - 4)[0]
    body_size = max(0, body_length)
    # Topic and properties have lengths of two bytes at most: nothing longer is read for them.
    if body_size > total - fixed or total - fixed - body_size > 2 * INT16_MAX:
        return r.BAD_LENGTHS
    topic_at = body_at + body_size + length_size
    topic_size = int.from_bytes(part(topic_at - length_size, length_size), "big", signed=True)
    if not 0 <= topic_size <= total - fixed - body_size:
        return r.BAD_LENGTHS
    tail = part(topic_at, total - topic_at)
    properties_size = max(0, int.from_bytes(tail[topic_size : topic_size + 2], "big", signed=True))
    if fixed + body_size + topic_size + properties_size != total or len(tail) != total - topic_at:
        return r.BAD_LENGTHS
    if position != phy_offset:
        return r.BAD_POSITION
    after = store_at + 8 + store
    reconsume_times, prepared_offset, _ = r.TAIL_LAYOUT.unpack_from(first, after + 4)
    return Message(
        phy_offset, total, length_size, crc, queue_id, flag, queue_offset, sys_flag,
        born_time, Host(first[r.AT_BORN_HOST : r.AT_BORN_HOST + born], _INT32.unpack_from(first, r.AT_BORN_HOST + born)[0]),
        _INT64.unpack_from(first, store_at)[0],
        Host(first[store_at + 8 : after], _INT32.unpack_from(first, after)[0]),
        reconsume_times, prepared_offset, body_at, body_size,
        java_text(tail[:topic_size]), read_properties(java_text(tail[topic_size + 2 :])),
    )  # fmt: skip


class Glance(NamedTuple):
    """A few fields of a record: its size, V1 or V2, FLAG, SYSFLAG, store time (milliseconds), bytes of its body, its topic's
    bytes."""

    size: int
    version: int
    flag: int
    sys_flag: int
    store_time: int
    body_size: int
    raw_topic: bytes


def store_time_at(data: bytes | memoryview, at: int) -> int:
    """Return the store time of the record at ``data[at]``, in milliseconds since 1970."""
    v6 = _INT32.unpack_from(data, at + r.AT_SYS_FLAG)[0] & r.FLAG_BORN_HOST_V6
    time: int = _INT64.unpack_from(data, at + r.AT_STORE_TIMESTAMP + (r.IPV6_EXTRA if v6 else 0))[0]
    return time


def glance(data: bytes, at: int) -> Glance:
    """Return a few fields of the good record at ``data[at]``, all of which is in ``data``."""
    total, magic, _, _, flag, _, _, sys_flag, _ = r.HEAD_LAYOUT.unpack_from(data, at)
    born = r.IPV6_EXTRA if sys_flag & r.FLAG_BORN_HOST_V6 else 0
    body_at = at + r.HEADER_SIZE + born + (r.IPV6_EXTRA if sys_flag & r.FLAG_STORE_HOST_V6 else 0)
    body_size = max(0, _INT32.unpack_from(data, body_at - 4)[0])
    topic_at = body_at + body_size
    if magic == r.MAGIC_V1:
        version, size, topic_at = 1, data[topic_at], topic_at + 1
    else:
        version, size, topic_at = 2, data[topic_at] << 8 | data[topic_at + 1], topic_at + 2
    return Glance(total, version, flag, sys_flag, store_time_at(data, at), body_size, data[topic_at : topic_at + size])


def record_heads(data: bytes, low: int) -> list[int]:
    """Return the offsets of the log at which a record may begin in ``data``, its bytes from the offset ``low`` on.

    A body may be full of magic numbers: few have such a place behind them.
    """
    places = b"|".join(re.escape((place >> 24).to_bytes(5, "big")) for place in (low, low + len(data)))
    head = re.compile(b"(?:%b)(?=.{%d}(?:%b))" % (_MAGIC, r.AT_PHYSICAL_OFFSET - r.AT_BODY_CRC, places), re.DOTALL)
    return [low + found.start() - r.AT_MAGIC for found in head.finditer(data)]
