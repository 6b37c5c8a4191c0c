"""A log of DLedger with the records of a plain one, as a group of one node would have written them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

HEAD = 48
BLANK, NO_RECORD = -1, (-875286124, 0)
AT_PHYSICAL, AT_SYSFLAG, AT_PREPARED = 28, 36, 76
CRC = b"__CRC32#\x01"


def plain_records(log: Path) -> Iterator[tuple[int, bytes]]:
    """Each record of a plain log that has no damage, with its offset."""
    for path in sorted(log.iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if magic in NO_RECORD:
                break
            yield int(path.name) + at, data[at : at + size]
            at += size


def as_dledger(log: Path, store: Path, segment: int, start: int = 0, term: int = 1) -> list[tuple[int, int]]:
    """Write the records of ``log`` as entries into ``store``/dledger-n0, from offset ``start`` on; all are committed.

    Files have ``segment`` bytes. Returns where each entry begins, and its bytes.
    """
    data = store / "dledger-n0" / "data"
    data.mkdir(parents=True)
    new: dict[int, int] = {}
    entries: list[tuple[int, int]] = []
    at, parts, first = start, list[bytes](), start

    def close() -> None:
        (data / f"{first:020d}").write_bytes(b"".join(parts).ljust(segment, b"\0"))

    for index, (old, record) in enumerate(plain_records(log)):
        size = HEAD + len(record)
        room = first + segment - at
        # MmapFileList.preAppend: an entry and room for a blank behind it.
        if room < size + 8:
            parts.append(struct.pack(">ii", BLANK, room))
            close()
            at = first = first + segment
            parts.clear()
        new[old] = at + HEAD
        entries.append((at, size))
        parts.append(struct.pack(">iiqqqiiii", 1, size, index, term, at, 0, 0, 0, len(record)))
        parts.append(_moved(record, at + HEAD, new))
        at += size
    close()
    (store / "dledger-n0" / "checkpoint").write_text(f"committedIndex={len(new) - 1}\nendIndex={len(new) - 1}\n")
    return entries


def _moved(record: bytes, offset: int, new: dict[int, int]) -> bytes:
    moved = bytearray(record)
    struct.pack_into(">q", moved, AT_PHYSICAL, offset)
    (sysflag,) = struct.unpack_from(">i", moved, AT_SYSFLAG)
    prepared = AT_PREPARED + sum(12 for bit in (0x10, 0x20) if sysflag & bit)
    (half,) = struct.unpack_from(">q", moved, prepared)
    struct.pack_into(">q", moved, prepared, new.get(half, half) if half else 0)
    if moved[-20:].startswith(CRC):
        number = zlib.crc32(moved[:-20]) & 0x7FFFFFFF
        moved[-11:-1] = f"{number:010d}"[::-1].encode()
    return bytes(moved)
