"""Unpack one message's body, never into more bytes than allowed: a few packed bytes can stand for gigabytes."""

import zlib
from typing import NamedTuple

from rocketmq_reindex.storage_format.record.message import LZ4, ZLIB, ZSTD


class Unpacked(NamedTuple):
    """What came out of a packed body."""

    data: bytes
    more: bool
    """whether there are more bytes than allowed"""
    fault: str
    """what is wrong with the packed body; "": nothing"""


def unpack(raw: bytes, compression: str, most: int) -> Unpacked:
    """Unpack the first ``most`` bytes of ``raw``; of a broken body, what comes out before it breaks.

    ``compression`` is ZLIB, LZ4 or ZSTD (``CompressionType``, RocketMQ 5.3).
    """
    if compression == ZLIB:
        return _zlib(raw, most)
    if compression in (LZ4, ZSTD):
        return _arrow(raw, compression, most)
    return Unpacked(b"", False, "unknown compression")


def _zlib(raw: bytes, most: int) -> Unpacked:
    stream, data = zlib.decompressobj(), b""
    try:
        # One byte more shows whether there are more.
        data = stream.decompress(raw, most + 1)
    except zlib.error:
        return Unpacked(_salvage(raw, most), False, "broken ZLIB stream")
    if len(data) > most:
        return Unpacked(data[:most], True, "")
    return Unpacked(data, False, "" if stream.eof else "ZLIB stream ends too soon")


def _salvage(raw: bytes, most: int) -> bytes:
    """What comes out of a broken stream before it breaks."""
    stream, parts, left = zlib.decompressobj(), [], most
    for at in range(len(raw)):
        try:
            parts.append(stream.decompress(raw[at : at + 1], left + 1))
        except zlib.error:
            break
        left -= len(parts[-1])
        if left < 0:
            break
    return b"".join(parts)[:most]


def _arrow(raw: bytes, compression: str, most: int) -> Unpacked:
    import pyarrow as pa

    parts: list[bytes] = []
    left, fault = most + 1, ""
    try:
        with pa.CompressedInputStream(pa.BufferReader(raw), compression) as stream:
            while left > 0:
                part = stream.read(min(left, 1 << 16))
                if not part:
                    break
                parts.append(part)
                left -= len(part)
    except (OSError, pa.ArrowException):
        fault = f"broken {compression.upper()} frame"
    data = b"".join(parts)
    return Unpacked(data[:most], len(data) > most, fault)
