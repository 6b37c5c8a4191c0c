"""The units of ConsumeQueue files (``consume_queue``) and of batch ones (``batch_queue``): sizes, and fields in order."""

from __future__ import annotations

import struct
from typing import Final

UNIT_LAYOUT: Final = struct.Struct(">qiq")
"""commitLogOffset, size, tagsCode"""
UNIT_SIZE: Final = UNIT_LAYOUT.size
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""``ConsumeQueue.fillPreBlank``: (0, 2147483647, 0) stands before a queue's first unit in its first file."""

BATCH_LAYOUT: Final = struct.Struct(">qiqqqhii")
"""commitLogOffset, size, tagsCode, storeTimestamp, msgBaseOffset, batchSize, compactedOffset, reserved"""
BATCH_UNIT_SIZE: Final = BATCH_LAYOUT.size
