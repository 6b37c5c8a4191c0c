"""Read ranges of files: local ones by calls of the operating system, mapped where that works."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.integers import INT32_MAX
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.ahead import Ahead
from rocketmq_reindex.udfs.files.local import MADV_POPULATE_READ, open_regular
from rocketmq_reindex.udfs.files.parts import PART_BYTES, PartsAhead, read_parts
from rocketmq_reindex.udfs.files.systems import naming, resolve

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketmq_reindex.storage_format.told import Told

MAPPED_MAX: Final = INT32_MAX
"""bytes of a file that a broker maps as a whole (``MappedFile``): the size of a map is a Java int"""
CONFIG_MAX: Final = 64 << 20
"""bytes of a file in config/ that are read at most"""
_LINES_BYTES: Final = 64 << 10
_TOLD_BYTES: Final = 32 << 20


class Reader:
    """Reads ranges of the file at ``path``; a context manager.

    Raises OSError when the file cannot be opened or read, and InputError for what is no regular file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        system, inner = resolve(path)
        self._file = None if system is None else system.fs.open_input_file(inner)
        self._handle = open_regular(inner) if system is None else -1
        self._local = inner
        self._parts = system is not None and system.flat
        """whether several requests at once are faster"""
        self._ahead: Ahead | None = None
        self._coming: PartsAhead | None = None

    def read_ahead(self, until: int, let_go: bool = False) -> None:
        """Have bytes up to ``until`` loaded before they are asked for, in order: by ``view``, or in a bucket by ``read_into``.

        ``let_go``: what that loads of a local file leaves the page cache once it has been passed.
        """
        self._close_ahead()
        if self._handle >= 0:
            self._ahead = Ahead(self._local, self._handle, until, let_go)
        elif self._parts:
            self._coming = PartsAhead(self._file, until)

    def _close_ahead(self) -> None:
        for ahead in (self._ahead, self._coming):
            if ahead is not None:
                ahead.close()

    def read_into(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` (uint8) from byte ``at`` on. Raises InputError when the file ends too early."""
        self._fill(at, out.data)
        if self._coming is not None:
            self._coming.expect(at + len(out), len(out))

    def _fill(self, at: int, view: memoryview) -> None:
        while len(view):
            got = self._read_some(at, view)
            if not got:
                raise InputError(f"{escape(self.path)}: ends at byte {at}, shorter than when the run began: input changed")
            view = view[got:]
            at += got

    def _read_some(self, at: int, view: memoryview) -> int:
        if self._file is not None:
            if self._coming is not None and (count := self._coming.read(at, view)):
                return count
            if self._parts and len(view) > PART_BYTES:
                return read_parts(self._file, at, view)
            self._file.seek(at)
            return int(self._file.readinto(view))
        with naming(self.path):
            return os.preadv(self._handle, [view], at)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """``count`` bytes (uint8) from ``at`` on, mapped instead of copied; None where that does not work: then read them.

        All pages are loaded at once. So a file that has become shorter, or a bad disk, is an error here, and not a signal that
        kills the process.
        """
        if self._handle < 0 or count <= 0:
            return None
        low = at - at % mmap.ALLOCATIONGRANULARITY
        try:
            # A private mapping, never written to: to compiled loops a read-only array is another type.
            mapped = mmap.mmap(self._handle, at + count - low, access=mmap.ACCESS_COPY, offset=low)
            if self._ahead is not None:
                self._ahead.need(low, at + count)
            mapped.madvise(MADV_POPULATE_READ)
        except (OSError, ValueError):
            return None
        import numpy as np

        return np.frombuffer(mapped, np.uint8)[at - low :]

    def whole(self, told: Told | None = None) -> npt.NDArray[np.uint8]:
        """All bytes of a ConsumeQueue file, an IndexFile or such (uint8), mapped where that works.

        ``told`` is told how far that is where they are not mapped.

        Raises InputError, and reads nothing, for more than a broker can map.
        """
        import numpy as np

        size = self.size()
        _check_size(self.path, size, MAPPED_MAX)
        data = self.view(0, size)
        if data is not None:
            return data
        if told is None:
            return np.frombuffer(self.read(0, size), np.uint8)
        told.begin("read", size)
        data = np.empty(size, np.uint8)
        for at in range(0, size, _TOLD_BYTES):
            part = data[at : at + _TOLD_BYTES]
            self.read_into(at, part)
            told.moved(len(part))
        told.end()
        return data

    def size(self) -> int:
        """The file's size in bytes, now."""
        if self._file is not None:
            return int(self._file.size())
        with naming(self.path):
            return os.fstat(self._handle).st_size

    def next_data(self, at: int) -> int:
        """The first byte from ``at`` on that may not be zero: behind a hole, if there is one; at most the file's size."""
        size = self.size()
        if self._handle < 0 or at >= size:
            return min(at, size)
        try:
            return min(os.lseek(self._handle, at, os.SEEK_DATA), size)
        except OSError as error:
            # ENXIO: a hole up to the end. A file system that does not know this has no holes.
            return size if error.errno == errno.ENXIO else at

    def next_part(self, at: int) -> tuple[int, int]:
        """The next part from ``at`` on that may not be zero: its first byte, and its end; twice the file's size for none."""
        begin = self.next_data(at)
        size = self.size()
        if self._handle < 0 or begin >= size:
            return begin, size
        try:
            return begin, min(max(begin + 1, os.lseek(self._handle, begin, os.SEEK_HOLE)), size)
        except OSError:
            return begin, size

    def read(self, at: int, count: int) -> bytes:
        """``count`` bytes from ``at`` on. Raises InputError when the file ends too early."""
        out = bytearray(count)
        self._fill(at, memoryview(out))
        return bytes(out)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close_ahead()
        if self._file is not None:
            self._file.close()
        else:
            with naming(self.path):
                os.close(self._handle)


def read_bytes(path: str, most: int | None = None) -> bytes:
    """All bytes of a small file, of the size that it has when it is opened.

    Raises InputError, and reads nothing, when it has more than ``most`` bytes.
    """
    with Reader(path) as reader:
        size = reader.size()
        if most is not None:
            _check_size(path, size, most)
        return reader.read(0, size)


def head(path: str, most: int) -> bytes:
    """The first bytes of a file, at most ``most``."""
    with Reader(path) as reader:
        return reader.read(0, min(most, reader.size()))


def _check_size(path: str, size: int, most: int) -> None:
    if size > most:
        raise InputError(f"{escape(path)}: has {size:,} bytes where at most {most:,} are read: look at what lies there")


def lines(path: str) -> Iterator[bytes]:
    """The lines of a text file without their ends; a last line without an end is left out. Little of it is in memory."""
    with Reader(path) as reader:
        at, size, rest = 0, reader.size(), b""
        while at < size:
            piece = reader.read(at, min(_LINES_BYTES, size - at))
            at += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
