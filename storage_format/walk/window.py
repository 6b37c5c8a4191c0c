"""The part of the log that a scan has in memory: a reused buffer that is read into, or a view of a mapped file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.words import int16_at, int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import Stretch, addresses_extra

Bytes = npt.NDArray[np.uint8]
ReadInto = Callable[[int, Bytes], None]
"""Fill the array with the log's bytes from an absolute offset on; raises if they are not there."""
View = Callable[[int, int], Bytes | None]
"""So many mapped bytes of the log from an absolute offset on, without a copy. None where they are not mapped."""
Seen = Callable[[int, Bytes], None]
"""Takes each stretch of bytes that has come into memory, with its absolute offset: in their order, some perhaps twice."""


def _see_nothing(_at: int, _data: Bytes) -> None:
    """Takes bytes that nobody wants."""


class Window:
    """``data[:filled]`` is the log from absolute offset ``base`` on. Copies go through one buffer of ``chunk`` bytes."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._buffer = np.empty(0, np.uint8)
        self.data, self.base, self.filled = self._buffer, 0, 0

    def open(
        self, at: int, segment_end: int, data_end: int, read: ReadInto, view: View | None, seen: Seen = _see_nothing
    ) -> None:  # fmt: skip
        """Begin at absolute offset ``at`` of a segment; ``segment_end`` and ``data_end`` as in ``Stretch``."""
        self._segment_end, self._data_end, self._read, self._view, self._seen = segment_end, data_end, read, view, seen
        self.data, self.base, self.filled = self._buffer, at, 0

    def close(self) -> None:
        """Drop views, and a buffer that a long record has made longer."""
        if len(self._buffer) > self._chunk:
            self._buffer = np.empty(0, np.uint8)
        self.data, self.filled = self._buffer, 0

    @property
    def stretch(self) -> Stretch:
        """What is in memory, as the record loops take it."""
        return Stretch(self.data, self.filled, self.base, self._segment_end, self._data_end)

    @property
    def capacity(self) -> int:
        """The bytes that fit without a longer buffer."""
        return max(self._chunk, len(self.data))

    def adds_up(self, at: int, total: int) -> bool:
        """Before a buffer grows for a record of ``total`` bytes at ``data[at]``: do the lengths at its far end add up?"""
        if total <= self.capacity:
            return True
        data, end = self.data, self.base + at + total
        extra = addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
        body = max(0, int32_at(data, at + r.AT_BODY_LENGTH + extra))
        v1 = int32_at(data, at + r.AT_MAGIC) == r.MAGIC_V1
        topic_at = self.base + at + r.HEADER_SIZE + extra + body
        length = np.zeros(2, np.uint8)
        self._read(topic_at, length[1:] if v1 else length)
        topic = int16_at(length, 0)
        properties_at = topic_at + (1 if v1 else 2) + topic
        if topic < 0 or properties_at + 2 > min(end, self._data_end):
            return False
        self._read(properties_at, length)
        return properties_at + 2 + max(0, int16_at(length, 0)) == end

    def more(self, at: int, want: int, limit: int, ahead: int = 0) -> int:
        """Get at least ``want`` bytes from ``data[at]`` on; returns the new index of that byte.

        A chunk is filled, but not past the absolute offset ``limit``. ``ahead`` bytes behind those wanted are read as well,
        limit or not.
        """
        start = self.base + at
        end = min(max(start + want + ahead, min(limit, start + self._chunk)), self._data_end)
        view = self._view(start, end - start) if self._view else None
        if view is None:
            return self._copy(at, want, limit, ahead)
        fresh = self.end
        self.data, self.base, self.filled = view, start, len(view)
        self._seen(fresh, view[fresh - start :])
        return 0

    def _copy(self, at: int, want: int, limit: int, ahead: int) -> int:
        buffer = self._buffer
        if self.data is not buffer or at + want > len(buffer):
            kept = self.data[at : self.filled]
            # With half a chunk to spare, bytes are moved once in half a chunk: images of large records can begin anywhere.
            size = self._chunk if want <= self._chunk // 2 else want + self._chunk // 2
            if max(size, len(kept)) > len(buffer):
                buffer = np.empty(max(size, len(kept)), np.uint8)
                buffer[: len(kept)] = kept
            else:
                buffer[: len(kept)] = kept.copy()
            self._buffer = self.data = buffer
            self.base, self.filled, at = self.base + at, len(kept), 0
        room = self.base + len(buffer)
        end = min(max(self.base + at + want + ahead, min(limit, room)), room, self._data_end)
        start, fresh = self.end, buffer[self.filled : end - self.base]
        self._read(start, fresh)
        self._seen(start, fresh)
        self.filled = end - self.base
        return at

    def pass_on(self, until: int) -> None:
        """Hand the bytes that follow, up to absolute offset ``until``, to ``seen``, without keeping them."""
        until = min(until, self._data_end)
        while self.end < until:
            self.more(self.filled, 1, until)

    @property
    def end(self) -> int:
        """The absolute offset behind the last byte in memory."""
        return self.base + self.filled
