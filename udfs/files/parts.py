"""Read a long stretch of an object in parts by several requests at once: one connection is slower than a scan."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

PART_BYTES: Final = 8 << 20
AT_ONCE: Final = 4
"""Requests of one process at a time; each holds a part in memory."""

_pools: list[ThreadPoolExecutor] = []
# A fork has none of the threads.
os.register_at_fork(after_in_child=_pools.clear)


def read_parts(file: Any, at: int, view: memoryview) -> int:
    """Fill ``view`` from byte ``at`` of an open pyarrow file; returns how many bytes there were before the file's end."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(AT_ONCE, thread_name_prefix="read"))

    def read(low: int) -> int:
        part = view[low : low + PART_BYTES]
        found = file.read_at(len(part), at + low)
        part[: len(found)] = found
        return len(found)

    count = 0
    for low, got in zip(starts := range(0, len(view), PART_BYTES), _pools[0].map(read, starts), strict=True):
        if count == low:
            count += got
    return count
