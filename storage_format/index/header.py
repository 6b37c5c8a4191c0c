"""IndexFiles (RocketMQ ``IndexFile``, ``IndexHeader``): a hash index from ``topic#key`` to physical offsets, big-endian.

    header 40:  beginTimestamp 8, endTimestamp 8, beginPhyOffset 8, endPhyOffset 8, hashSlotCount 4, indexCount 4
    slots:      maxHashSlotNum x 4      the number of the newest item in the slot, 0 for none
    items:      maxIndexNum x 20        keyHash 4, phyOffset 8, timeDiff 4 (seconds), prevItem 4

Items are numbered from 1; the place of item 0 stays zero, so a file holds maxIndexNum - 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ITEM_LAYOUT: Final = struct.Struct(">iqii")
ITEM_SIZE: Final = ITEM_LAYOUT.size
_HEADER: Final = struct.Struct(">qqqqii")


@dataclass(frozen=True)
class IndexHeader:
    """Times in milliseconds since 1970; offsets absolute; ``index_count`` is items + 1."""

    begin_time: int
    end_time: int
    begin_place: int
    end_place: int
    slot_count: int
    index_count: int

    def to_bytes(self) -> bytes:
        return _HEADER.pack(self.begin_time, self.end_time, self.begin_place, self.end_place, self.slot_count, self.index_count)

    @classmethod
    def from_bytes(cls, data: bytes) -> IndexHeader:
        """Raises ValueError when ``data`` is too short to be one."""
        if len(data) < HEADER_SIZE:
            raise ValueError(f"an index header has {HEADER_SIZE} bytes, not {len(data)}")
        return cls(*_HEADER.unpack_from(data))


def file_size(slots: int, items: int) -> int:
    """Bytes of an IndexFile with so many slots and places for items."""
    return HEADER_SIZE + slots * SLOT_SIZE + items * ITEM_SIZE
