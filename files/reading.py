"""Read ranges of files: local ones mapped where that works, objects by several requests, a few bytes by pages."""

from __future__ import annotations

import errno
import mmap
import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from rocketmq_reindex.files import entries, systems, uris
from rocketmq_reindex.storage_format import errors, layouts, showing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketmq_reindex.storage_format.errors import ProgressListener

# ------------------------------------------------------------------------------------------------------------------------ parts
# Read a long stretch of an object in parts by several requests at once: one connection is slower than a scan.

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
    """Fill ``view`` from byte ``at`` of an open pyarrow file. Return how many bytes there were before the file's end."""

    def read(low: int) -> int:
        part = view[low : low + PART_BYTES]
        data = file.read_at(len(part), at + low)
        part[: len(data)] = data
        return len(data)

    count = 0
    for low, received in zip(starts := range(0, len(view), PART_BYTES), _pool().map(read, starts), strict=True):
        if count == low:
            count += received
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
        """Fill the begin of ``view`` from byte ``at`` on with what has been sent for. Return how many bytes, perhaps 0."""
        count = 0
        for low, data in self._found(at):
            piece = memoryview(data)[at + count - low :][: len(view) - count]
            view[count : count + len(piece)] = piece
            count += len(piece)
            if count == len(view):
                break
        return count

    def _found(self, at: int) -> Iterator[tuple[int, bytes]]:
        """Yield the parts from the one with byte ``at`` on, up to one that could not be read whole: its reader meets the
        error."""
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


# ---------------------------------------------------------------------------------------------------------------------- reading
# Read ranges of files: local ones by calls of the operating system, mapped where that works.

MAPPED_MAX: Final = layouts.INT32_MAX
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
        system, inner = systems.resolve(path)
        self._file = None if system is None else system.fs.open_input_file(inner)
        self._handle = entries.open_regular(inner) if system is None else -1
        self._local = inner
        self._parts = system is not None and system.flat
        """whether several requests at once are faster"""
        self._ahead: entries.Ahead | None = None
        self._coming: PartsAhead | None = None

    def read_ahead(self, until: int, let_go: bool = False) -> None:
        """Have bytes up to ``until`` loaded before they are asked for, in order: by ``view``, or in a bucket by ``read_into``.

        ``let_go``: what that loads of a local file leaves the page cache once it has been passed.
        """
        self._close_ahead()
        if self._handle >= 0:
            self._ahead = entries.Ahead(self._local, self._handle, until, let_go)
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
            received = self._read_some(at, view)
            if not received:
                raise errors.InputError(
                    f"{showing.escape(self.path)}: ends at byte {at}, shorter than when the run began: input changed"
                )
            view = view[received:]
            at += received

    def _read_some(self, at: int, view: memoryview) -> int:
        if self._file is not None:
            if self._coming is not None and (count := self._coming.read(at, view)):
                return count
            if self._parts and len(view) > PART_BYTES:
                return read_parts(self._file, at, view)
            self._file.seek(at)
            return int(self._file.readinto(view))
        with systems.naming(self.path):
            return os.preadv(self._handle, [view], at)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """Return ``count`` bytes (uint8) from ``at`` on, mapped instead of copied; None where that does not work: then read
        them.

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
            mapped.madvise(entries.MADV_POPULATE_READ)
        except (OSError, ValueError):
            return None
        import numpy as np

        return np.frombuffer(mapped, np.uint8)[at - low :]

    def whole(self, progress: ProgressListener | None = None) -> npt.NDArray[np.uint8]:
        """Return all bytes of a ConsumeQueue file, an IndexFile or such (uint8), mapped where that works.

        ``progress`` is told how far that is where they are not mapped.

        Raises InputError, and reads nothing, for more than a broker can map.
        """
        import numpy as np

        size = self.size()
        _check_size(self.path, size, MAPPED_MAX)
        data = self.view(0, size)
        if data is not None:
            return data
        if progress is None:
            return np.frombuffer(self.read(0, size), np.uint8)
        progress.begin("read", size)
        data = np.empty(size, np.uint8)
        for at in range(0, size, _TOLD_BYTES):
            part = data[at : at + _TOLD_BYTES]
            self.read_into(at, part)
            progress.moved(len(part))
        progress.end()
        return data

    def size(self) -> int:
        """Return the file's size in bytes, now."""
        if self._file is not None:
            return int(self._file.size())
        with systems.naming(self.path):
            return os.fstat(self._handle).st_size

    def next_data(self, at: int) -> int:
        """Return the first byte from ``at`` on that may not be zero: behind a hole, if there is one; at most the file's
        size."""
        size = self.size()
        if self._handle < 0 or at >= size:
            return min(at, size)
        try:
            return min(os.lseek(self._handle, at, os.SEEK_DATA), size)
        except OSError as error:
            # ENXIO: a hole up to the end. A file system that does not know this has no holes.
            return size if error.errno == errno.ENXIO else at

    def next_part(self, at: int) -> tuple[int, int]:
        """Return the next part from ``at`` on that may not be zero: its first byte, and its end; twice the file's size for
        none."""
        begin = self.next_data(at)
        size = self.size()
        if self._handle < 0 or begin >= size:
            return begin, size
        try:
            return begin, min(max(begin + 1, os.lseek(self._handle, begin, os.SEEK_HOLE)), size)
        except OSError:
            return begin, size

    def read(self, at: int, count: int) -> bytes:
        """Return ``count`` bytes from ``at`` on. Raises InputError when the file ends too early."""
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
            with systems.naming(self.path):
                os.close(self._handle)


def read_bytes(path: str, size_max: int | None = None) -> bytes:
    """Return all bytes of a small file, of the size that it has when it is opened.

    Raises InputError, and reads nothing, when it has more than ``size_max`` bytes.
    """
    with Reader(path) as reader:
        size = reader.size()
        if size_max is not None:
            _check_size(path, size, size_max)
        return reader.read(0, size)


def head(path: str, size_max: int) -> bytes:
    """Return the first bytes of a file, at most ``size_max``."""
    with Reader(path) as reader:
        return reader.read(0, min(size_max, reader.size()))


def _check_size(path: str, size: int, size_max: int) -> None:
    if size > size_max:
        raise errors.InputError(
            f"{showing.escape(path)}: has {size:,} bytes where at most {size_max:,} are read: look at what lies there"
        )


def lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a text file without their ends; a last line without an end is left out. Little of it is in memory."""
    with Reader(path) as reader:
        at, size, open_line = 0, reader.size(), b""
        while at < size:
            piece = reader.read(at, min(_LINES_BYTES, size - at))
            at += len(piece)
            *whole, open_line = (open_line + piece).split(b"\n")
            yield from whole


# ------------------------------------------------------------------------------------------------------------------------ pages
# Small reads of a file through a few pages in memory, so that a lookup reads no more of the file than it needs.

LOCAL_PAGE: Final = 1 << 14
REMOTE_PAGE: Final = 1 << 17
"""A request for this much takes as long as one for a byte."""
_KEPT: Final = 256


class Pages:
    """The file at ``path``, of the size that it had when it was opened. Raises OSError or InputError as ``Reader`` does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reader = Reader(path)
        self.size = self._reader.size()
        self._page = REMOTE_PAGE if uris.is_remote(path) else LOCAL_PAGE
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def _load(self, number: int) -> bytes:
        page = self._kept.get(number)
        if page is None:
            start = number * self._page
            page = self._reader.read(start, min(self._page, self.size - start))
            self._kept[number] = page
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(number)
        return page

    def read(self, at: int, count: int) -> bytes:
        """Return ``count`` bytes from ``at`` on; fewer at the file's end, none outside of the file."""
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
