"""The bytes of a store's files, mapped when they are asked for, so that only what a start reads comes from the disk."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.start.store import IndexFileData, StoreFile
from rocketmq_reindex.udfs.files.local import open_regular
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
        self._held: OrderedDict[str, Bytes] = OrderedDict()

    def get(self, path: str, size: int) -> Bytes:
        """``size`` bytes of a file. Raises OSError, and InputError for one that is shorter by now, or no regular file."""
        if path in self._held:
            self._held.move_to_end(path)
        else:
            self._held[path] = self._map(path, size)
            if len(self._held) > _MAPPED_MAX:
                self._held.popitem(last=False)
        return self._held[path]

    @staticmethod
    def _map(path: str, size: int) -> Bytes:
        handle = open_regular(path)
        try:
            with naming(path):
                if os.fstat(handle).st_size < size:
                    raise InputError(f"{escape(path)}: is shorter than it was a moment ago: {CHANGED}")
                return np.frombuffer(mmap.mmap(handle, size, flags=_FLAGS, prot=_PROTECTION), np.uint8)
        finally:
            os.close(handle)


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


class MappedIndex(IndexFileData):
    """An IndexFile, mapped likewise, as long as the broker maps it: a shorter file has zeros behind it."""

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
        found = self._maps.get(self._path, there) if there else np.zeros(0, np.uint8)
        if there == self._whole:
            return found
        longer = np.zeros(self._whole, np.uint8)
        longer[:there] = found
        return longer
