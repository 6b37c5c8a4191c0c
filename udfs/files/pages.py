"""Small reads of a file through a few pages kept in memory: a lookup reads no more of it, local or remote, than it needs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rocketmq_reindex.udfs import files

LOCAL_PAGE: Final = 1 << 14
REMOTE_PAGE: Final = 1 << 17
"""a request takes as long for this as for a byte"""
_KEPT: Final = 256


class Pages:
    """A file as it was when it was opened. Raises OSError or InputError as ``files.Reader`` does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reader = files.Reader(path)
        self.size = self._reader.size()
        self._page = REMOTE_PAGE if files.is_remote(path) else LOCAL_PAGE
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def _load(self, number: int) -> bytes:
        found = self._kept.get(number)
        if found is None:
            start = number * self._page
            found = self._reader.read(start, min(self._page, self.size - start))
            self._kept[number] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(number)
        return found

    def read(self, at: int, count: int) -> bytes:
        """Bytes from ``at`` on, fewer at the file's end, none outside of it."""
        if at < 0:
            return b""
        count = min(count, self.size - at)
        if count <= 0:
            return b""
        first, last = at // self._page, (at + count - 1) // self._page
        if first == last:
            low = at - first * self._page
            return self._load(first)[low : low + count]
        if count > 2 * self._page:
            return self._reader.read(at, count)
        whole = b"".join(self._load(number) for number in range(first, last + 1))
        low = at - first * self._page
        return whole[low : low + count]

    def close(self) -> None:
        self._reader.__exit__(None, None, None)
