"""A lookup in one IndexFile as the broker does it (``IndexFile.selectPhyOffset``), in plain Python."""

from __future__ import annotations

import struct

from tests.reference import java
from tests.reference.index_file import HEADER, key_hash


def select(content: bytes, slots: int, text: str, most: int, begin: int, end: int) -> list[int]:
    """Physical offsets of the items whose hash is that of ``text`` (``topic#key``), newest first."""
    (begin_time,) = struct.unpack_from(">q", content, 0)
    (count,) = struct.unpack_from(">i", content, 36)
    wanted = key_hash(java.java_text(text))
    (number,) = struct.unpack_from(">i", content, HEADER + 4 * (wanted % slots))
    found: list[int] = []
    while 0 < number <= count and len(found) < most:
        hashed, place, seconds, before = struct.unpack_from(">iqii", content, HEADER + 4 * slots + 20 * number)
        stored = begin_time + 1000 * seconds
        if hashed == wanted and begin <= stored <= end:
            found.append(place)
        if before == number or stored < begin:
            break
        number = before
    return found
