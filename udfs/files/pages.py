"""Small reads of a file through a few pages in memory, so that a lookup reads no more of the file than it needs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rocketmq_reindex.udfs import files

LOCAL_PAGE: Final = 1 << 14
REMOTE_PAGE: Final = 1 << 17
"""A request for this much takes as long as one for a byte."""
_KEPT: Final = 256


class Pages:
    """The file at ``path``, of the size that it had when it was opened. Raises OSError or InputError as ``Reader`` does."""

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
        """``count`` bytes from ``at`` on; fewer at the file's end, none outside of the file."""
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
        """Close the file."""
        self._reader.__exit__(None, None, None)
