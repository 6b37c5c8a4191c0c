"""Digests of files and of stretches of files, taken while a scan reads them or afterwards."""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.files.reading import Reader
from rocketmq_reindex.storage_format.digest import KIND, new_digest

_READ_BYTES: Final = 16 << 20
Bytes = npt.NDArray[np.uint8]


class ReadDigest:
    """The digest of what a scan reads, from offset ``low`` on: without gaps, each byte once.

    ``kind`` is one of ``storage_format.digest.KINDS``.
    """

    def __init__(self, low: int, kind: str = KIND) -> None:
        self._at = self._far = low
        self._hasher = new_digest(kind=kind)

    def __call__(self, at: int, data: Bytes) -> None:
        """Take in bytes (uint8) that were read at offset ``at``."""
        end = at + len(data)
        if at > self._at:
            # The scan read ahead, to the end of what may be a record: the bytes before it follow, or ``finish`` reads them.
            self._far = max(self._far, end)
        elif end > self._at:
            self._hasher.update(data[self._at - at :].data)
            self._at = end

    def finish(self, reader: Reader, start: int) -> tuple[int, str]:
        """Return the offset behind the last byte that was read, and the digest of all bytes from ``low`` to there.

        ``reader`` reads the segment, which begins at offset ``start``.
        """
        _feed(reader, start, self._at, self._far, self)
        return self._at, self._hasher.digest().hex()


def _feed(reader: Reader, start: int, low: int, high: int, digest: ReadDigest) -> None:
    for at in range(low, high, _READ_BYTES):
        count = min(_READ_BYTES, high - at)
        data = reader.view(at - start, count)
        if data is None:
            data = np.empty(count, np.uint8)
            reader.read_into(at - start, data)
        digest(at, data)


def digest_of(reader: Reader, start: int, low: int, high: int, kind: str = KIND) -> str:
    """Return the digest of the offsets [low, high) of the segment that begins at offset ``start``, in hex."""
    digest = ReadDigest(low, kind)
    reader.read_ahead(high - start)
    _feed(reader, start, low, high, digest)
    return digest.finish(reader, start)[1]


def file_digest(path: str, used: int | None = None, kind: str = KIND) -> str:
    """Return the digest of a file, or of its first ``used`` bytes, in hex."""
    with Reader(path) as reader:
        return digest_of(reader, 0, 0, reader.size() if used is None else used, kind)


class UsedDigest:
    """The digest of a stream of bytes up to its last one that is not zero, as the manifest has it of a file."""

    def __init__(self) -> None:
        self._hasher, self._at, self._zeros = new_digest(), 0, 0

    def take(self, data: Bytes) -> int:
        """Take in bytes (uint8). Return how many of them there are up to the last one that is not zero."""
        used = len(data) - int(np.argmax(data[::-1] != 0)) if data.any() else 0
        if used:
            zeros = bytes(min(self._zeros, _READ_BYTES))
            while self._zeros:
                part = min(self._zeros, len(zeros))
                self._hasher.update(zeros[:part])
                self._zeros -= part
            self._hasher.update(data[:used].data)
        self._zeros += len(data) - used
        self._at += len(data)
        return used

    def finish(self) -> tuple[int, str]:
        """Return how many bytes are in use, and their digest."""
        return self._at - self._zeros, self._hasher.digest().hex()
