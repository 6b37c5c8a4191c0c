"""Say what a file is that has the name of a segment and begins with no record of RocketMQ."""

from __future__ import annotations

from typing import Final

from rocketmq_reindex.storage_format.queue.units import UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r

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
    """Say what a segment begins with, by its first HEAD bytes; "" for a record, a filler or nothing but zeros."""
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
    if _is_text(head):
        return f"{shown}: text?"
    return shown


def _has_units(head: bytes) -> bool:
    """Whether it looks like a ConsumeQueue file: two units of records, the later one behind the earlier."""
    if len(head) < 2 * UNIT_SIZE:
        return False
    (first, size, _), (second, second_size, _) = UNIT_LAYOUT.iter_unpack(head[: 2 * UNIT_SIZE])
    if first < 0 or not r.RECORD_MIN <= size <= _UNIT_OF:
        return False
    is_last = not any(head[UNIT_SIZE : 2 * UNIT_SIZE])
    return is_last or (second >= first + size and r.RECORD_MIN <= second_size <= _UNIT_OF)


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters, up to the zeros at its end."""
    try:
        # The head may end inside of a character.
        text = head.rstrip(b"\0").decode("utf-8", "strict" if len(head) < HEAD else "ignore")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\r\n" for char in text)
