"""The bytes of a store's files, mapped when they are asked for, so that only what a start reads comes from the disk."""

from __future__ import annotations

import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.start.store import IndexFileData, StoreFile
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.local import MADV_POPULATE_READ, open_regular
from rocketmq_reindex.udfs.files.systems import naming

Bytes = npt.NDArray[np.uint8]
_MAPPED_MAX: Final = 256
"""Files that are mapped at once: each mapping holds a handle."""
_FLAGS: Final = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
_PROTECTION: Final = mmap.PROT_READ | mmap.PROT_WRITE
"""Never written to: to compiled loops a read-only array is another type."""


class Maps:
    """Mapped files, the latest used of them; each with the size that it had when it was listed."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[mmap.mmap, Bytes]] = OrderedDict()

    def get(self, path: str, size: int) -> Bytes:
        """``size`` bytes of a file. Raises OSError, and InputError for one that is shorter by now, or no regular file."""
        return self._mapped(path, size)[1]

    def _mapped(self, path: str, size: int) -> tuple[mmap.mmap, Bytes]:
        found = self._held.get(path)
        if found is None:
            found = self._held[path] = self._map(path, size)
            if len(self._held) > _MAPPED_MAX:
                self._held.popitem(last=False)
            return found
        self._held.move_to_end(path)
        with naming(path):
            # To touch what a file has lost is a signal, and no error.
            if found[0].size() < size:
                raise _shorter(path)
        return found

    @staticmethod
    def _map(path: str, size: int) -> tuple[mmap.mmap, Bytes]:
        handle = open_regular(path)
        try:
            with naming(path):
                if os.fstat(handle).st_size < size:
                    raise _shorter(path)
                mapped = mmap.mmap(handle, size, flags=_FLAGS, prot=_PROTECTION)
                return mapped, np.frombuffer(mapped, np.uint8)
        finally:
            os.close(handle)

    def load(self, path: str, size: int, low: int, high: int) -> None:
        """Load the pages of bytes ``low`` to ``high`` of a mapped file. Raises the same."""
        mapped, _ = self._mapped(path, size)
        low -= low % mmap.PAGESIZE
        try:
            if low < high:
                mapped.madvise(MADV_POPULATE_READ, low, high - low)
        except OSError as error:
            if error.errno in (errno.EFAULT, errno.ENOMEM):
                raise _shorter(path) from None
            if error.errno != errno.EINVAL:  # an older Linux
                raise OSError(error.errno, error.strerror or os.strerror(error.errno or 0), path) from error

    def parts(self, path: str, size: int, low: int) -> Iterator[tuple[int, int]]:
        """First byte and end of each part of a file from byte ``low`` on that is no hole. Raises OSError."""
        with files.Reader(path) as reader:
            while low < size:
                begin, end = reader.next_part(low)
                if begin < size:
                    yield begin, min(end, size)
                low = end

    def let_go(self, path: str, low: int, high: int) -> None:
        """Take the pages of bytes ``low`` to ``high`` out of this process: the page cache keeps them."""
        if path in self._held:
            mapped, data = self._held[path]
            low -= low % mmap.PAGESIZE
            high = min(high, len(data))
            if low < high:
                mapped.madvise(mmap.MADV_DONTNEED, low, high - low)


def _shorter(path: str) -> InputError:
    return InputError(f"{escape(path)}: is shorter than it was a moment ago: {CHANGED}")


CHANGED: Final = "the store changes while it is read: stop the broker, or take a snapshot"


class MappedFile(StoreFile):
    """A file of the commitlog or of a queue whose bytes are mapped when they are asked for."""

    def __init__(self, name: str, path: str, size: int, maps: Maps) -> None:
        for field, value in (("name", name), ("_path", path), ("_size", size), ("_maps", maps)):
            object.__setattr__(self, field, value)

    _path: str
    _size: int
    _maps: Maps

    @property
    def data(self) -> Bytes:
        """The bytes, uint8."""
        return self._maps.get(self._path, self._size)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self._size

    def parts(self, low: int) -> Iterator[tuple[int, int]]:
        """Each part from byte ``low`` on that is no hole."""
        return self._maps.parts(self._path, self._size, low)

    def load(self, low: int, high: int) -> None:
        """Have bytes ``low`` to ``high`` loaded. Raises OSError, and InputError where the file is shorter by now."""
        self._maps.load(self._path, self._size, low, high)

    def let_go(self, low: int, high: int) -> None:
        """Take bytes ``low`` to ``high`` out of this process."""
        self._maps.let_go(self._path, low, high)


class MappedIndex(IndexFileData):
    """An IndexFile, mapped likewise, at most as much of it as the broker maps."""

    def __init__(self, name: str, path: str, size: int, whole: int, maps: Maps) -> None:
        for field, value in (("name", name), ("_path", path), ("_size", size), ("_whole", whole), ("_maps", maps)):
            object.__setattr__(self, field, value)

    _path: str
    _size: int
    _whole: int
    _maps: Maps

    @property
    def data(self) -> Bytes:
        """The bytes, uint8."""
        there = min(self._size, self._whole)
        return self._maps.get(self._path, there) if there else np.zeros(0, np.uint8)

    def let_go(self, low: int, high: int) -> None:
        """Take bytes ``low`` to ``high`` out of this process."""
        self._maps.let_go(self._path, low, high)
