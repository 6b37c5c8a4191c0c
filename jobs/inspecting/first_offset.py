"""Where a segment begins in the log: by its name, by an option, or by the PHYSICALOFFSET of a record in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.findings import UnreadableError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import Stretch, find_record, new_record
from rocketmq_reindex.storage_format.record.layout import CRC_BODY
from rocketmq_reindex.udfs import files

OPTION: Final = "--first-offset"
_STEP: Final = 16 << 20
_WORK_MAX: Final = 256 << 20
"""Bytes of what only looks like records that are checked, at most."""
_MAGIC: Final = struct.pack(">i", r.MAGIC_V1)[:2]
"""both versions begin so"""


class Begin(NamedTuple):
    """The offset of a file's first byte in the log, and where that is known from."""

    offset: int
    by: str


def begin_of(path: str, size: int, given: int | None) -> Begin:
    """Where the segment at ``path`` begins. Raises UnreadableError where it is not known."""
    named = first_byte(files.base(path))
    if given is not None:
        found = Begin(given, OPTION)
    elif named is not None:
        found = Begin(named, "name")
    else:
        by_record = by_records(path, size)
        if by_record is None:
            raise UnreadableError(
                "its name is not the offset of its first byte, in 20 digits, and no good record in it tells that offset: "
                f"give it as {OPTION}"
            )
        found = by_record
    if found.offset > INT64_MAX - size:
        raise UnreadableError(f"offset {found.offset} is beyond what a commitlog can hold")
    return found


def by_records(path: str, size: int) -> Begin | None:
    """By the first good record of the file: PHYSICALOFFSET less the byte at which it stands."""
    record, work = new_record(), 0
    with files.Reader(path) as reader:
        for at, head in _candidates(reader, size):
            (total,) = struct.unpack_from(">i", head, 0)
            (phy_offset,) = struct.unpack_from(">q", head, r.AT_PHYSICAL_OFFSET)
            begin = phy_offset - at
            work += r.HEADER_SIZE
            if r.RECORD_MIN <= total <= size - at and 0 <= begin <= INT64_MAX - size:
                work += total
                data = np.frombuffer(reader.read(at, total), np.uint8)
                end = begin + size
                code, _ = find_record(Stretch(data, total, phy_offset, end, end), 0, 1, CRC_BODY, record)
                if code == r.GOOD:
                    return Begin(begin, f"record at byte {at}")
            if work > _WORK_MAX:
                break
    return None


def _candidates(reader: files.Reader, size: int) -> Iterator[tuple[int, bytes]]:
    """(byte, header) of whatever has a record's magic."""
    for low in range(0, size, _STEP):
        data = reader.read(low, min(_STEP + r.HEADER_SIZE, size - low))
        at = data.find(_MAGIC, 4)
        while 4 <= at < _STEP + 4:
            head = data[at - 4 : at - 4 + r.HEADER_SIZE]
            if len(head) == r.HEADER_SIZE:
                yield low + at - 4, head
            at = data.find(_MAGIC, at + 1)
