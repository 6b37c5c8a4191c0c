"""The checkpoint (RocketMQ ``StoreCheckpoint``): 4,096 bytes, big-endian, the rest zeros.

0   physicMsgTimestamp   8
8   logicsMsgTimestamp   8
16  indexMsgTimestamp    8
24  masterFlushedOffset  8   (5.x)
32  confirmPhyOffset     8   (5.x)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

SIZE: Final = 4096
_LAYOUT: Final = struct.Struct(">qqqqq")


@dataclass(frozen=True)
class Checkpoint:
    """Times in milliseconds since 1970, ``confirm_offset`` an absolute offset of the commitlog."""

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm_offset: int = 0

    def to_bytes(self) -> bytes:
        fields = (self.physic, self.logics, self.index, self.master_flushed, self.confirm_offset)
        return _LAYOUT.pack(*fields).ljust(SIZE, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Raises ValueError when ``data`` is too short to be one."""
        if len(data) < _LAYOUT.size:
            raise ValueError(f"a checkpoint has {SIZE} bytes, not {len(data)}")
        return cls(*_LAYOUT.unpack_from(data))
