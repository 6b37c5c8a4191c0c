"""Read a long stretch of an object in parts by several requests at once: one connection is slower than a scan."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

PART_BYTES: Final = 8 << 20
AT_ONCE: Final = 4
"""Requests of one process at a time; each holds a part in memory."""

_pools: list[ThreadPoolExecutor] = []
# A fork has none of the threads.
os.register_at_fork(after_in_child=_pools.clear)


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        _pools.append(ThreadPoolExecutor(AT_ONCE, thread_name_prefix="read"))
    return _pools[0]


def read_parts(file: Any, at: int, view: memoryview) -> int:
    """Fill ``view`` from byte ``at`` of an open pyarrow file; returns how many bytes there were before the file's end."""

    def read(low: int) -> int:
        part = view[low : low + PART_BYTES]
        found = file.read_at(len(part), at + low)
        part[: len(found)] = found
        return len(found)

    count = 0
    for low, got in zip(starts := range(0, len(view), PART_BYTES), _pool().map(read, starts), strict=True):
        if count == low:
            count += got
    return count


class PartsAhead:
    """Parts of an open pyarrow file up to byte ``until`` that are on their way before they are asked for.

    They follow one another, and are as many as the last long read had, and one more.
    """

    def __init__(self, file: Any, until: int) -> None:
        self._file, self._until = file, until
        self._parts: deque[tuple[int, int, Future[bytes]]] = deque()

    def expect(self, low: int, count: int) -> None:
        """Send for ``count`` bytes from ``low`` on, as far as they are not on their way: a read of as many ended there."""
        if count < PART_BYTES:
            return
        while self._parts and self._parts[0][1] <= low:
            self._parts.popleft()[2].cancel()
        if self._parts and self._parts[0][0] > low:
            self.close()
        at = self._parts[-1][1] if self._parts else low
        while at < min(low + count, self._until):
            high = min(at + PART_BYTES, self._until)
            self._parts.append((at, high, _pool().submit(self._file.read_at, high - at, at)))
            at = high

    def read(self, at: int, view: memoryview) -> int:
        """Fill the begin of ``view`` from byte ``at`` on with what has been sent for; returns how many bytes, perhaps 0."""
        count = 0
        for low, data in self._found(at):
            piece = memoryview(data)[at + count - low :][: len(view) - count]
            view[count : count + len(piece)] = piece
            count += len(piece)
            if count == len(view):
                break
        return count

    def _found(self, at: int) -> Iterator[tuple[int, bytes]]:
        """The parts from the one with byte ``at`` on, up to one that could not be read whole: its reader meets the error."""
        for low, high, coming in tuple(self._parts):
            if high <= at:
                continue
            if low > at or coming.cancelled():
                return
            try:
                data = coming.result()
            except OSError:
                return
            yield low, data
            if len(data) < high - low:
                return
            at = high

    def close(self) -> None:
        """Wait until no request is under way; drop what has come."""
        for _, _, coming in self._parts:
            coming.cancel()
        wait([coming for _, _, coming in self._parts])
        self._parts.clear()
