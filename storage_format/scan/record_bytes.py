"""Get the bytes of a record that goes on behind the window, where its lengths add up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.words import int16_at, int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import TOTAL, addresses_extra
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec
from rocketmq_reindex.storage_format.walk.window import ReadInto, Window


class RecordBytes:
    """Gets more bytes of one range into ``window``; ``rec[TOTAL]`` is the length of the record that wants them.

    It does not refer to the scanner: the two would keep each other, with all their buffers, until Python looks for cycles.
    """

    def __init__(self, spec: RangeSpec, read: ReadInto, window: Window, rec: npt.NDArray[np.int64]) -> None:
        self._spec, self._read, self._window, self._rec = spec, read, window, rec

    def more(self, at: int, limit: int, ahead: int = 0) -> int:
        """Get at least the bytes wanted from the index ``at`` on; returns the new index of that byte."""
        return self._window.more(at, int(self._rec[TOTAL]), limit, ahead)

    def is_sane(self, at: int) -> bool:
        """Before a buffer grows for a record larger than it: do the lengths at its far end add up?"""
        total, phy_offset, spec = int(self._rec[TOTAL]), self._window.base + at, self._spec
        if total <= self._window.capacity:
            return True
        data = self._window.data
        extra = addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
        body = max(0, int32_at(data, at + r.AT_BODY_LENGTH + extra))
        v1 = int32_at(data, at + r.AT_MAGIC) == r.MAGIC_V1
        topic_at = phy_offset + r.HEADER_SIZE + extra + body
        head = np.zeros(2, np.uint8)
        self._read(topic_at, head[1:] if v1 else head)
        topic = int16_at(head, 0)
        end = topic_at + (1 if v1 else 2) + topic
        if topic < 0 or end + 2 > min(phy_offset + total, spec.data_end):
            return False
        self._read(end, head)
        return end + 2 + max(0, int16_at(head, 0)) == phy_offset + total
