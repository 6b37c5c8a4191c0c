"""Bodies as they were before a producer packed them, never longer than asked for: few bytes can stand for gigabytes."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FLAG_COMPRESSED: Final = 0x01
"""``MessageSysFlag.COMPRESSED_FLAG``"""
_CODECS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
"""``CompressionType.findByValue`` of bits 8 to 10 of the system flag"""


def unpack(raw: bytes, codec: str | None, most: int) -> bytes | None:
    """What ``raw`` stands for; None where it is broken, of an unknown kind, or more than ``most`` bytes."""
    try:
        if codec == "zlib":
            stream = zlib.decompressobj()
            data = stream.decompress(raw, most + 1)
            return data if stream.eof and len(data) <= most else None
        if codec is None:
            return None
        with pa.CompressedInputStream(pa.BufferReader(raw), codec) as frames:
            parts, left = [], most + 1
            while left > 0 and (part := frames.read(min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
            return b"".join(parts) if left > 0 else None
    except (zlib.error, OSError, pa.ArrowException):
        return None


def unpack_bodies(bodies: pa.Array, sys_flag: npt.NDArray[np.int64], most: int, room: int) -> pa.Array:
    """The bodies, packed ones unpacked; null where that cannot be done within ``most`` bytes each.

    Fewer than there are once they have passed ``room`` bytes, but at least one.
    """
    if not (sys_flag & FLAG_COMPRESSED).any():
        return bodies
    found: list[bytes | None] = []
    size = 0
    for body, flag in zip(bodies, sys_flag.tolist(), strict=True):
        raw = body.as_py()
        data = unpack(raw, _CODECS.get(flag >> 8 & 7), most) if flag & FLAG_COMPRESSED else raw
        found.append(data)
        size += len(data) if data is not None else 0
        if size > room:
            break
    return pa.array(found, pa.binary())
