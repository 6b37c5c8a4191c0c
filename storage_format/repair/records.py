"""Records that stand where bytes of the log are lost. A broker's recovery accepts them; its dispatch passes over them.

A lost-record filler is a rolled-back transaction: such a record gives no unit (``CommitLogDispatcherBuildConsumeQueue``) and no
index item (``IndexService.buildIndex``), in 4.9 to 5.5. FLAG, which is the application's and which no broker reads, says that
it is ours.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.storage_format.record import layout as r

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
    long_topic = len(topic) > 127
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
    """``__CRC32#`` of a record without it: ten digits, the lowest first (``MessageDecoder.createCrc32``)."""
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
        left = end - offset
        # What is left for the last one must be enough for a record.
        piece = left if left <= PIECE_MAX else min(PIECE_MAX, left - demands.filler_min)
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
    return _FIXED - 1 + (1 if len(topic) > 127 else 0) + len(topic) + len(_TAGS) + demands.size


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
