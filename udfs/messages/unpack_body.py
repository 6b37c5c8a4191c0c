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


def unpack(raw: bytes, compression: str, size_max: int) -> Unpacked:
    """Return the first ``size_max`` unpacked bytes of ``raw``; of a broken body, what comes out before it breaks.

    ``compression`` is ZLIB, LZ4 or ZSTD (``CompressionType``, RocketMQ 5.3).
    """
    if compression == ZLIB:
        return _zlib(raw, size_max)
    if compression in (LZ4, ZSTD):
        return _arrow(raw, compression, size_max)
    return Unpacked(b"", False, "unknown compression")


def _zlib(raw: bytes, size_max: int) -> Unpacked:
    stream, data = zlib.decompressobj(), b""
    try:
        # One byte more shows whether there are more.
        data = stream.decompress(raw, size_max + 1)
    except zlib.error:
        return Unpacked(_salvage(raw, size_max), False, "broken ZLIB stream")
    if len(data) > size_max:
        return Unpacked(data[:size_max], True, "")
    return Unpacked(data, False, "" if stream.eof else "ZLIB stream ends too soon")


def _salvage(raw: bytes, size_max: int) -> bytes:
    """Return what comes out of a broken stream before it breaks."""
    stream, parts, room = zlib.decompressobj(), [], size_max
    for at in range(len(raw)):
        try:
            parts.append(stream.decompress(raw[at : at + 1], room + 1))
        except zlib.error:
            break
        room -= len(parts[-1])
        if room < 0:
            break
    return b"".join(parts)[:size_max]


def _arrow(raw: bytes, compression: str, size_max: int) -> Unpacked:
    import pyarrow as pa

    parts: list[bytes] = []
    room, fault = size_max + 1, ""
    try:
        with pa.CompressedInputStream(pa.BufferReader(raw), compression) as stream:
            while room > 0:
                part = stream.read(min(room, 1 << 16))
                if not part:
                    break
                parts.append(part)
                room -= len(part)
    except (OSError, pa.ArrowException):
        fault = f"broken {compression.upper()} frame"
    data = b"".join(parts)
    return Unpacked(data[:size_max], len(data) > size_max, fault)
