"""Digests: xxh3 (128 bits) of aligned chunks of a segment, and of the written bytes of an output file.

They tell changed files apart; they are no defence against someone who wants two files to collide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

import mmh3
import xxhash

from rocketmq_reindex.storage_format.layouts import EARLIER_KIND as EARLIER_KIND, KIND as KIND

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHUNK: Final = 64 << 20
"""Bytes of a segment under one digest, counted from the segment's start."""
KINDS: Final[dict[str, Callable[[], Digest]]] = {KIND: xxhash.xxh3_128, EARLIER_KIND: mmh3.mmh3_x64_128}
"""What makes a digest, by its kind."""


class Digest(Protocol):
    """Takes in bytes, and gives the digest of all of them."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take in more bytes."""

    def digest(self) -> bytes:
        """Return the digest, 16 bytes."""


def new_digest(parts: Iterable[bytes | memoryview | npt.NDArray[np.uint8]] = (), kind: str = KIND) -> Digest:
    """Return a digest of ``parts`` one after another, which ``update`` goes on with; ``digest().hex()`` gives its 32 hex
    digits.

    ``kind`` is one of KINDS.
    """
    hasher = KINDS[kind]()
    for part in parts:
        hasher.update(part if isinstance(part, bytes | bytearray | memoryview) else part.data)
    return hasher


class ChunkDigests:
    """Digests of the chunks that start in one range of a segment, fed with the log's bytes in order.

    ``chunks`` maps a chunk's absolute start to its digest, once the chunk's last byte has been seen. ``data_end`` is where the
    segment's file ends, [``low``, ``high``) the range; all are absolute offsets.
    """

    def __init__(self, segment_start: int, data_end: int, low: int, high: int) -> None:
        first = segment_start + -(-(low - segment_start) // CHUNK) * CHUNK
        self.chunks: dict[int, str] = {}
        self._next = first
        """start of the next chunk to begin"""
        self._high = high
        self._data_end = data_end
        self._at = low
        self._hasher: Digest | None = None

    @property
    def wanted_until(self) -> int:
        """The absolute offset up to which bytes are needed: where the last chunk that starts in the range ends, 0 for none."""
        if self._next >= self._high and self._hasher is None:
            return 0
        last = self._next - CHUNK if self._hasher is not None else self._next
        while last + CHUNK < self._high:
            last += CHUNK
        return min(last + CHUNK, self._data_end)

    def feed(self, at: int, data: npt.NDArray[np.uint8]) -> None:
        """Take in bytes of the log, uint8, from absolute offset ``at`` on. Bytes that were seen before are passed over."""
        if at < self._at:
            data = data[self._at - at :]
            at = self._at
        while len(data):
            if self._hasher is None:
                if self._next >= self._high:
                    return
                skip = self._next - at
                if skip >= len(data):
                    self._at = at + len(data)
                    return
                data, at = data[max(skip, 0) :], max(at, self._next)
                self._hasher = new_digest()
                self._next += CHUNK
            end = min(self._next, self._data_end)
            part = data[: end - at]
            self._hasher.update(part.data)
            at += len(part)
            data = data[len(part) :]
            self._at = at
            if at == end:
                self.chunks[self._next - CHUNK] = self._hasher.digest().hex()
                self._hasher = None
