"""Sorted lines that executors left in parts, merged. Little is held at once, however many lines and parts there are."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

FAN_IN: Final = 256
"""Parts that are merged, and so held open, at once."""
_PIECES: Final = 1 << 12

Key = Callable[[bytes], Any]
"""What a line is sorted by"""
Entry = tuple[Any, bytes]


def entries(part: str, key: Key) -> Iterator[Entry]:
    """Yield (key, line) for each line of a part."""
    for line in files.lines(part):
        yield key(line), line


def few_parts(staging: StagingFolder, parts: list[str], key: Key) -> list[str]:
    """Merge parts until they are few enough to be open all at once; return them. The merged parts are removed."""
    while len(parts) > FAN_IN:
        merged = []
        for low in range(0, len(parts), FAN_IN):
            group = parts[low : low + FAN_IN]
            path = files.join(staging.plans, f"merged-{uuid.uuid4().hex}")
            lines = (line + b"\n" for _, line in heapq.merge(*(entries(part, key) for part in group)))
            files.write_bytes(staging.temporary, path, joined(lines))
            for part in group:
                files.remove_tree(part)
            merged.append(path)
        parts = merged
    return parts


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield many small pieces as few larger ones: each costs a system call."""
    pieces = iter(pieces)
    while some := b"".join(islice(pieces, _PIECES)):
        yield some
