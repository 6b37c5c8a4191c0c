"""The one thin layer over files: every file of the input, the output and the staging area is reached through here.

A plain path is a local or mounted file, a URI goes through pyarrow.fs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from storage_format.errors import InputError
from storage_format.names import escape

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyarrow import fs as pafs

    Buffer = bytes | memoryview | npt.NDArray[Any]

# numpy and pyarrow are imported where they are needed: a command that reads a few pages of local files must not wait for them.
_MADV_POPULATE_READ: Final = 22
"""Linux 5.14 and later; Python has no name for it."""
FILE, FOLDER, OTHER, ABSENT = "file", "folder", "other", "absent"
_KINDS: Final = {"File": FILE, "Directory": FOLDER, "NotFound": ABSENT, "Unknown": OTHER}
"""by the name of ``pyarrow.fs.FileType``"""
_REMOVE_ATTEMPTS: Final = 3
_LINES_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class Entry:
    """One file or folder: size in bytes, modification time in nanoseconds since 1970."""

    name: str
    path: str
    kind: str
    size: int
    modified: int


def is_remote(path: str) -> bool:
    """Whether a path is a URI."""
    return "://" in path


def _resolve(path: str) -> tuple[pafs.FileSystem | None, str]:
    """The file system of a URI, or None for local files, and the path there."""
    if is_remote(path):
        from pyarrow import fs as pafs

        system, inner = pafs.FileSystem.from_uri(path)
        return system, str(inner)
    return None, os.path.abspath(path)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of calls that know only a handle name the file, too."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or os.strerror(error.errno), path) from error
        raise


def join(folder: str, *names: str) -> str:
    """A path below ``folder``; ``names`` are validated components."""
    return "/".join([folder.rstrip("/"), *names])


def _entry(info: pafs.FileInfo, path: str) -> Entry:
    return Entry(info.base_name, path, _KINDS[info.type.name], info.size or 0, info.mtime_ns or 0)


def _local_entry(path: str) -> Entry:
    """What stands at the end of all links."""
    name = os.path.basename(path)
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return Entry(name, path, ABSENT, 0, 0)
        raise
    if stat.S_ISREG(found.st_mode):
        return Entry(name, path, FILE, found.st_size, found.st_mtime_ns)
    return Entry(name, path, FOLDER if stat.S_ISDIR(found.st_mode) else OTHER, 0, found.st_mtime_ns)


def look(path: str) -> Entry:
    """What stands at ``path``."""
    system, inner = _resolve(path)
    return _local_entry(path) if system is None else _entry(system.get_file_info(inner), path)


def listing(folder: str) -> list[Entry]:
    """The entries of a folder by name."""
    system, inner = _resolve(folder)
    if system is None:
        return [_local_entry(join(folder, name)) for name in sorted(os.listdir(inner))]
    from pyarrow import fs as pafs

    infos = system.get_file_info(pafs.FileSelector(inner))
    return sorted((_entry(info, join(folder, info.base_name)) for info in infos), key=lambda e: e.name)


def names(folder: str) -> list[str]:
    """The names of a folder's entries, in no order: nothing is asked of each of them."""
    system, inner = _resolve(folder)
    if system is None:
        return os.listdir(inner)
    from pyarrow import fs as pafs

    return [info.base_name for info in system.get_file_info(pafs.FileSelector(inner))]


def _open_regular(path: str) -> int:
    """A handle to read a file. Raises InputError for what is none: opening a FIFO may wait for ever, a device never end."""
    # Twice: opening a device can do things by itself, and what was looked at may be another by now.
    regular = stat.S_ISREG(os.stat(path).st_mode)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC) if regular else -1
    try:
        with naming(path):
            if regular and stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
        raise InputError(f"{escape(path)}: is no regular file: give a file")
    except BaseException:
        if handle >= 0:
            os.close(handle)
        raise


class Reader:
    """Reads ranges of one file into arrays that the caller owns."""

    def __init__(self, path: str) -> None:
        self.path = path
        system, inner = _resolve(path)
        self._file = None if system is None else system.open_input_file(inner)
        self._handle = _open_regular(inner) if system is None else -1

    def read_into(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` from byte ``at`` on. Raises InputError when the file ends before."""
        self._fill(at, out.data)

    def _fill(self, at: int, view: memoryview) -> None:
        if self._file is not None:
            self._file.seek(at)
        while len(view):
            got = self._read_some(at, view)
            if not got:
                raise InputError(f"{escape(self.path)}: ends at byte {at}, shorter than when the run began: input changed")
            view = view[got:]
            at += got

    def _read_some(self, at: int, view: memoryview) -> int:
        if self._file is not None:
            return int(self._file.readinto(view))
        with naming(self.path):
            return os.preadv(self._handle, [view], at)

    def view(self, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        """Bytes from ``at`` on, mapped instead of copied; None where that cannot be: then they are read.

        The pages are asked for at once, so that a file that has become shorter, or a bad disk, is an error here and not a
        signal that kills the process.
        """
        if self._handle < 0 or count <= 0:
            return None
        low = at - at % mmap.ALLOCATIONGRANULARITY
        try:
            # A private mapping, never written to: arrays that may not be written are another type to compiled loops.
            mapped = mmap.mmap(self._handle, at + count - low, access=mmap.ACCESS_COPY, offset=low)
            mapped.madvise(_MADV_POPULATE_READ)
        except (OSError, ValueError):
            return None
        import numpy as np

        return np.frombuffer(mapped, np.uint8)[at - low :]

    def size(self) -> int:
        if self._file is not None:
            return int(self._file.size())
        with naming(self.path):
            return os.fstat(self._handle).st_size

    def next_data(self, at: int) -> int:
        """The first byte from ``at`` on that may not be zero: behind a hole, where there are any; at most the size."""
        size = self.size()
        if self._handle < 0 or at >= size:
            return min(at, size)
        try:
            return min(os.lseek(self._handle, at, os.SEEK_DATA), size)
        except OSError as error:
            # ENXIO: a hole up to the end. A file system that cannot tell has no holes.
            return size if error.errno == errno.ENXIO else at

    def read(self, at: int, count: int) -> bytes:
        out = bytearray(count)
        self._fill(at, memoryview(out))
        return bytes(out)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
        else:
            with naming(self.path):
                os.close(self._handle)


def read_bytes(path: str) -> bytes:
    """A whole small file, as long as it is when it is opened."""
    with Reader(path) as reader:
        return reader.read(0, reader.size())


def lines(path: str) -> Iterator[bytes]:
    """The lines of a text file that ends with one, without their ends; little of it is held at once."""
    with Reader(path) as reader:
        at, size, rest = 0, reader.size(), b""
        while at < size:
            piece = reader.read(at, min(_LINES_BYTES, size - at))
            at += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole


def make_folder(path: str, below: str = "") -> None:
    """A folder and those it lies in, but for ``below`` and what that lies in: FileNotFoundError when ``below`` is not there."""
    system, inner = _resolve(path)
    if system is not None:
        system.create_dir(inner, recursive=True)
        return
    base = os.path.abspath(below) if below else os.path.sep
    missing = []
    while inner != base and not os.path.isdir(inner):
        missing.append(inner)
        inner = os.path.dirname(inner)
    for folder in reversed(missing):
        # Another task may make the same one.
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)


def remove_tree(path: str) -> None:
    """Remove a folder or file; nothing happens when there is none. Symbolic links are not followed. Raises nothing."""
    system, inner = _resolve(path)
    if system is not None:
        if _KINDS[system.get_file_info(inner).type.name] == FOLDER:
            system.delete_dir(inner)
        return
    for _ in range(_REMOVE_ATTEMPTS):
        if os.path.isdir(inner) and not os.path.islink(inner):
            shutil.rmtree(inner, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(inner)
        if not os.path.lexists(inner):
            return


def rename(source: str, target: str) -> None:
    """Rename within one file system; a file at ``target`` is replaced as a whole."""
    system, inner = _resolve(source)
    if system is None:
        os.replace(inner, os.path.abspath(target))
    else:
        system.move(inner, _resolve(target)[1])


def link(source: str, target: str) -> bool:
    """A second name for a file, where the file system has that. A name that is there already stays as it is."""
    if is_remote(source):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return True  # by another attempt of the same task
    except OSError:
        return False
    return True


class Writer:
    """Writes one file aside and moves it to its place when it is whole.

    Attempts of the same task never share a temporary name, and write the same bytes, so whichever comes last leaves a whole
    file. Offsets given to ``write_at`` must rise; what lies between is zeros (a hole where the file system can).
    """

    def __init__(self, temporary_folder: str, target: str) -> None:
        self._system, self._target = _resolve(target)
        self._temporary = join(_resolve(temporary_folder)[1], uuid.uuid4().hex)
        self._at = 0
        self.written = 0
        """bytes written, holes not counted"""
        self._handle, self._stream = -1, None
        if self._system is None:
            self._handle = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        else:
            self._stream = self._system.open_output_stream(self._temporary)

    def write_at(self, at: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # numpy shows its buffers to mypy from 3.12 on
        if at > self._at:
            self._skip_to(at)
        self.written += len(view)
        while len(view):
            count = self._write_some(view)
            view = view[count:]
            self._at += count

    def _write_some(self, view: memoryview) -> int:
        if self._stream is not None:
            self._stream.write(view)
            return len(view)
        with naming(self._temporary):
            count = os.pwrite(self._handle, view, self._at)
            if not count:
                raise OSError(errno.EIO, "nothing could be written")
            return count

    def append(self, data: Buffer) -> None:
        self.write_at(self._at, data)

    def _skip_to(self, at: int) -> None:
        if self._stream is not None:
            zeros = bytes(1 << 20)
            for low in range(self._at, at, len(zeros)):
                self._stream.write(zeros[: at - low])
        self._at = at

    def finish(self, size: int | None = None) -> None:
        """Give the file its full size and move it to its place."""
        if self._system is None or self._stream is None:
            with naming(self._temporary):
                if size is not None:
                    os.ftruncate(self._handle, size)
                self._close()
            os.replace(self._temporary, self._target)
            return
        if size is not None and size > self._at:
            self._skip_to(size)
        self._stream.close()
        self._system.move(self._temporary, self._target)

    def _close(self) -> None:
        """Close the local handle, once: it is gone whatever close says."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.close()
            self._close()
        with contextlib.suppress(OSError):
            if self._system is None:
                os.unlink(self._temporary)
            else:
                self._system.delete_file(self._temporary)


@contextlib.contextmanager
def writing(temporary_folder: str, target: str) -> Iterator[Writer]:
    """A Writer whose file appears only when the body calls ``finish``; anything else leaves nothing."""
    writer = Writer(temporary_folder, target)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


def write_bytes(temporary_folder: str, target: str, parts: Iterable[Buffer]) -> None:
    """A small file, whole or not at all."""
    with writing(temporary_folder, target) as writer:
        for part in parts:
            writer.append(part)
        writer.finish()


def sync(folder: str) -> None:
    """Make all that was written on the file system of ``folder`` durable (local file systems only)."""
    system, inner = _resolve(folder)
    if system is not None:
        return
    handle = os.open(inner, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # It tells of every write that failed in the background, of all files of the run.
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(handle) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), inner)
    finally:
        os.close(handle)


def free_bytes(folder: str) -> int | None:
    """Free bytes on the file system of ``folder``; None where that cannot be known."""
    system, inner = _resolve(folder)
    if system is not None:
        return None
    found = os.statvfs(inner)
    return found.f_bavail * found.f_frsize
