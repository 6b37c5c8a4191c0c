"""What is at a path, what is in a folder, and local files: opened where they are files indeed, and read ahead."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_reindex.files.systems import System, naming, resolve
from rocketmq_reindex.files.uris import join
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ---------------------------------------------------------------------------------------------------------------------- entries


if TYPE_CHECKING:
    from pyarrow import fs as pafs

FILE, FOLDER, OTHER, ABSENT = "file", "folder", "other", "absent"
_KINDS: Final = {"File": FILE, "Directory": FOLDER, "NotFound": ABSENT, "Unknown": OTHER}
"""The kind by the name of ``pyarrow.fs.FileType``."""


@dataclass(frozen=True)
class Entry:
    """One file or folder.

    ``kind`` is FILE, FOLDER, OTHER (such as a FIFO) or ABSENT; ``size`` is in bytes, ``modified`` in nanoseconds since 1970.
    """

    name: str
    path: str
    kind: str
    size: int
    modified: int


def _entry(info: pafs.FileInfo, path: str) -> Entry:
    return Entry(info.base_name, path, _KINDS[info.type.name], info.size or 0, info.mtime_ns or 0)


def _local_entry(path: str) -> Entry:
    """Return what is at the end of all symbolic links."""
    name = os.path.basename(path)
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return Entry(name, path, ABSENT, 0, 0)
        raise
    if stat.S_ISREG(status.st_mode):
        return Entry(name, path, FILE, status.st_size, status.st_mtime_ns)
    return Entry(name, path, FOLDER if stat.S_ISDIR(status.st_mode) else OTHER, 0, status.st_mtime_ns)


def entry_of(path: str) -> Entry:
    """Return the entry at ``path``; one of the kind ABSENT when there is none.

    Raises OSError when that cannot be found out, and InputError for a URI that is none.
    """
    system, inner = resolve(path)
    return _local_entry(path) if system is None else _entry(system.fs.get_file_info(inner), path)


def modified(path: str) -> int:
    """Return when a file was last written, by the clock of its store, in nanoseconds since 1970; 0 when there is no file."""
    entry = entry_of(path)
    return entry.modified if entry.kind == FILE else 0


def _infos(system: System, inner: str) -> list[pafs.FileInfo]:
    from pyarrow import fs as pafs

    # A bucket has no empty folders.
    infos = system.fs.get_file_info(pafs.FileSelector(inner, allow_not_found=system.flat))
    return [info for info in infos if info.base_name]


def listing(folder: str) -> list[Entry]:
    """Return the entries of a folder, by name. Raises OSError when there is no such folder, except in a bucket."""
    system, inner = resolve(folder)
    if system is None:
        return [_local_entry(join(folder, name)) for name in sorted(os.listdir(inner))]
    return sorted((_entry(info, join(folder, info.base_name)) for info in _infos(system, inner)), key=lambda e: e.name)


def below(folder: str) -> list[Entry]:
    """Return all files below a folder, which may be absent, in no order; each ``name`` is the path from the folder. Few
    requests."""
    system, inner = resolve(folder)
    if system is None:
        local_paths = [os.path.join(parent, name) for parent, _, names in os.walk(inner) for name in names]
        return [replace(_local_entry(path), name=os.path.relpath(path, inner)) for path in local_paths]
    from pyarrow import fs as pafs

    try:
        infos = system.fs.get_file_info(pafs.FileSelector(inner, recursive=True, allow_not_found=True))
    except FileNotFoundError:
        return []  # removed in the meantime
    start = len(inner.strip("/")) + 1
    paths = [(info.path.strip("/")[start:], info) for info in infos if info.type.name == "File"]
    return [replace(_entry(info, join(folder, path)), name=path) for path, info in paths]


def names(folder: str) -> list[str]:
    """Return the names of a folder's entries, in no order, without a request for each."""
    system, inner = resolve(folder)
    return os.listdir(inner) if system is None else [info.base_name for info in _infos(system, inner)]


def count_below(folder: str) -> int:
    """Return the number of files and folders below a local folder; -1 when there is no such folder."""
    if entry_of(folder).kind != FOLDER:
        return -1
    count, folders = 0, [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return count


# ----------------------------------------------------------------------------------------------------------------------- states
# How the files of a folder look, without reading one: whether it may be another folder by now, and what it takes on disk.


class FileState(NamedTuple):
    """How a file looks. ``name`` is the path from the folder, ``allocated`` the bytes that it takes where it lies.

    ``modified`` is in nanoseconds since 1970; ``mark`` also tells a file of the same size and time from the one before.
    """

    name: str
    size: int
    allocated: int
    modified: int
    mark: tuple[int, int, int] = 0, 0, 0


class FolderStates(NamedTuple):
    """The files below a folder, in no order. ``whole`` is false where some are not among them."""

    files: list[FileState]
    whole: bool


def states(folder: str, most: int) -> FolderStates:
    """Return how the files below a folder look, of at most ``most`` files and folders. Raises OSError where it is not there.

    Symbolic links to folders lead on from ``folder`` alone, and not from folders in it: what they lead to is not in ``whole``.
    """
    system, inner = resolve(folder)
    if system is not None:
        remote = [FileState(entry.name, entry.size, entry.size, entry.modified) for entry in below(folder)]
        return FolderStates(remote[:most], len(remote) <= most)
    found, whole, left, passed = list[FileState](), True, [inner], 0
    start = len(os.path.join(inner, ""))
    while left:
        within = left.pop()
        try:
            with os.scandir(within) as listed:
                for each in listed:
                    passed += 1
                    if passed > most:
                        return FolderStates(found, False)
                    if each.is_dir(follow_symlinks=within == inner):
                        left.append(each.path)
                    elif (state := _state(each.path[start:], each)) is not None:
                        found.append(state)
                    else:
                        whole = False
        except OSError:
            if within == inner:
                raise
            whole = False
    return FolderStates(found, whole)


def _state(name: str, listed: os.DirEntry[str]) -> FileState | None:
    """Return how a file looks at the end of all links; None for a link to a folder, and for what has gone meanwhile."""
    try:
        status = listed.stat()
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    mark = status.st_ctime_ns, status.st_ino, status.st_dev
    return FileState(name, status.st_size, min(status.st_size, status.st_blocks * 512), status.st_mtime_ns, mark)


# ------------------------------------------------------------------------------------------------------------------------ local
# Open local files, and nothing that only looks like one.

MADV_POPULATE_READ: Final = 22
"""Linux 5.14 and later; Python has no name for it."""


def open_regular(path: str) -> int:
    """Return a handle to read a regular file.

    Raises InputError for anything else: opening a FIFO may wait for ever, and a device may never end.
    """
    # Checked twice: to open a device may have effects, and the file may have been replaced since the first check.
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


# ------------------------------------------------------------------------------------------------------------------- read ahead
# Load a file into the page cache ahead of its reader, in a thread, and let go of what the reader has passed.
#
# A page fault of a mapping reads from the disk while the reader waits. So the disk idles while a compiled loop runs, and the
# loop while the disk reads: a scan of a log that no cache holds took the sum of both.

AHEAD_BYTES: Final = 64 << 20
"""How far the thread goes beyond what the reader waits for: this much of the page cache, and no memory of the process."""
PIECE_BYTES: Final = 32 << 20
"""Bytes that are looked up in the page cache as one, loaded as one, and let go as one."""
_STEP_BYTES: Final = 4 << 20
"""A reader that waits looks again after so many bytes."""
_PROBES: Final = 8
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)
"""Linux: a read that fails where it would wait for the disk."""


def outgrows_cache(size: int) -> bool:
    """Return whether ``size`` bytes, read once, would push much else out of the page cache: more than half of the machine's
    memory."""
    return 2 * size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Ahead:
    """Loads bytes of the local file ``path``, open as ``handle``, up to ``until``: further ones than ``need`` asks for.

    What is in the page cache costs some look-ups. Bytes that cannot be loaded are left to the reader, who meets the error. With
    ``let_go`` what this loaded leaves the cache once the reader is past it; what was there before stays.
    """

    def __init__(self, path: str, handle: int, until: int, let_go: bool = False) -> None:
        self._path, self._handle, self._until, self._let_go = path, handle, until, let_go
        self._thread: threading.Thread | None = None
        self._moved = threading.Condition()
        self._at = -1
        """up to here all is loaded"""
        self._wanted = 0
        self._closed = False
        self._passed: tuple[int, int] = 0, 0
        """where the last two calls of ``need`` began: what was mapped before them is no longer"""
        self._ours: list[tuple[int, int]] = []
        """pieces that were not in the cache before"""

    def need(self, low: int, high: int) -> None:
        """Wait until bytes [low, high) are loaded; more are loaded from now on. Calls ascend."""
        high = min(high, self._until)
        with self._moved:
            self._at, self._wanted = max(self._at, low), min(high + AHEAD_BYTES, self._until)
            self._moved.notify_all()
            if self._thread is None and (_NOWAIT is None or self._wanted <= high or not self._start()):
                return
            while self._at < high and not self._closed:
                self._moved.wait()
        self._release(self._passed[0])
        self._passed = self._passed[1], low

    def _start(self) -> bool:
        """Start the thread. Return whether there is one. A process may have as many as it is allowed."""
        thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def close(self) -> None:
        """End the thread. The file may be closed then."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._release(self._until)

    def _run(self) -> None:
        try:
            # FUSE and NFS do not say what is in the cache; and where a disk is bad, the reader will find out.
            with (
                contextlib.suppress(OSError, InputError),
                open(os.devnull, "wb", 0) as sink,
                open(open_regular(self._path), "rb", 0) as source,
            ):
                while (piece := self._next()) is not None:
                    self._load(sink.fileno(), source.fileno(), *piece)
        finally:
            with self._moved:
                self._closed = True
                self._moved.notify_all()

    def _next(self) -> tuple[int, int] | None:
        """Return the next piece; None at the end."""
        with self._moved:
            while self._at >= self._wanted and self._at < self._until and not self._closed:
                self._moved.wait()
            if self._at >= self._until or self._closed:
                return None
            return self._at, min(self._at + PIECE_BYTES, self._until)

    def _load(self, sink: int, source: int, low: int, high: int) -> None:
        # The last byte first: what the system reads ahead by itself must not pass for what was there before.
        cached = [self._is_cached(high - 1 - k * (high - low) // _PROBES) for k in range(_PROBES)]
        if all(cached):
            self._loaded(high)
            return
        if not any(cached):
            self._ours.append((low, high))
        # From page cache to nowhere: read in large pieces as for any file that is read in order, but no byte is copied.
        # posix_fadvise(WILLNEED) reads single pages, which cost twice the processor's time. A handle of its own: the look-ups
        # would make the system forget that this one reads in order.
        while low < high and not self._closed:
            count = os.sendfile(sink, source, low, min(_STEP_BYTES, high - low))
            if not count:  # the file has become shorter
                self._loaded(self._until)
                return
            low += count
            self._loaded(low)

    def _loaded(self, until: int) -> None:
        with self._moved:
            self._at = max(self._at, until)
            self._moved.notify_all()

    def _is_cached(self, at: int) -> bool:
        assert _NOWAIT is not None
        try:
            return os.preadv(self._handle, [bytearray(1)], at, _NOWAIT) > 0
        except BlockingIOError:
            return False

    def _release(self, before: int) -> None:
        """Let go of pieces that end at byte ``before`` or earlier; pages that another process maps stay."""
        while self._let_go and self._ours and self._ours[0][1] <= before:
            low, high = self._ours.pop(0)
            os.posix_fadvise(self._handle, low, high - low, os.POSIX_FADV_DONTNEED)
