"""Write files that appear only when they are whole, on a disk and behind a URI."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from rocketmq_reindex.files import folders, object_store, systems, uris

if TYPE_CHECKING:
    import numpy.typing as npt

    Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]

# ---------------------------------------------------------------------------------------------------------------------- sending
# Send a file to a store behind a URI so that nobody ever sees half of it.
#
# A stream of pyarrow publishes what it has when it is closed or garbage-collected, even after a failure. So a file is either
# sent under another name and renamed (HDFS), or held here and sent in one call (buckets). What is held can be sent again as a
# whole where a part of it could not be sent.

HELD_BYTES: Final = 32 << 20
"""A file with more bytes is held on the local disk."""
_FLUSH_BYTES: Final = 64 << 20
"""The stream may send in the background: to wait for it after so many bytes bounds its memory."""
_ZEROS: Final = bytes(1 << 20)


class Sending(Protocol):
    """One file on its way; all raise OSError but ``abandon``, which raises nothing."""

    def write(self, view: memoryview) -> None:
        """Append bytes."""

    def zeros(self, count: int) -> None:
        """Append ``count`` zeros."""

    def finish(self) -> None:
        """Publish the file."""

    def abandon(self) -> None:
        """Leave nothing."""


def open_sending(system: systems.System, temporary_folder: str, target: str) -> Sending:
    """Return what sends a file to ``target``, a path of ``system``."""
    if system.flat:
        return Held(system, target)
    return Streamed(system, f"{temporary_folder.rstrip('/')}/{uuid.uuid4().hex}", target)


class Streamed:
    """Sends at once, under ``name``, and renames the file to ``target`` at the end."""

    def __init__(self, system: systems.System, name: str, target: str) -> None:
        self._system, self._name, self._target = system, name, target
        assert not isinstance(system.fs, object_store.ObjectStore)
        self._stream = system.fs.open_output_stream(name)
        self._since = 0

    def write(self, view: memoryview) -> None:
        self._stream.write(view)
        self._since += len(view)
        if self._since >= _FLUSH_BYTES:
            self._stream.flush()
            self._since = 0

    def zeros(self, count: int) -> None:
        for low in range(0, count, len(_ZEROS)):
            self.write(memoryview(_ZEROS)[: count - low])

    def finish(self) -> None:
        self._stream.close()
        folders.replace(self._system, self._name, self._target)

    def abandon(self) -> None:
        # The streams of fsspec raise errors of any kind.
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(Exception):
            self._system.fs.delete_file(self._name)


class Held:
    """Holds the file until it is whole, and then sends it in one call: a failure before that publishes nothing."""

    def __init__(self, system: systems.System, target: str) -> None:
        self._system, self._target = system, target
        self._held = bytearray()
        self._spooled: IO[bytes] | None = None

    def write(self, view: memoryview) -> None:
        if self._spooled is None and len(self._held) + len(view) <= HELD_BYTES:
            self._held += view
            return
        with systems.naming(tempfile.gettempdir()):
            if self._spooled is None:
                self._spooled = tempfile.TemporaryFile(prefix="rmq-reindex-")  # noqa: SIM115  it lives as long as this
                self._spooled.write(self._held)
                self._held = bytearray()
            self._spooled.write(view)

    def zeros(self, count: int) -> None:
        for low in range(0, count, len(_ZEROS)):
            self.write(memoryview(_ZEROS)[: count - low])

    def finish(self) -> None:
        data: Any = self._held
        if self._spooled is not None:
            with systems.naming(tempfile.gettempdir()):
                self._spooled.flush()
            data = mmap.mmap(self._spooled.fileno(), 0, access=mmap.ACCESS_READ)
        self._system.fs.send(self._target, data)
        self.abandon()

    def abandon(self) -> None:
        self._held = bytearray()
        if self._spooled is not None:
            self._spooled.close()
            self._spooled = None


# ----------------------------------------------------------------------------------------------------------------------- writer
# Write files that appear only when they are whole. A local one is written aside and renamed; ``sending`` does the others.

_PIECE_BYTES: Final = 8 << 20
"""bytes of a file that begin their way to the disk together"""
_LEAST_BYTES: Final = 1 << 20
"""A file's end that is shorter waits for the sync, which takes many small files at once."""
_SYNC_FILE_RANGE_WRITE: Final = 2


@functools.cache
def _sync_file_range() -> Any:
    """Return Linux's call of this name; None elsewhere."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


class Writer:
    """Writes the file ``target`` by way of the folder ``temporary_folder``, and publishes it when it is whole.

    Attempts of one task never share a temporary name, and they write the same bytes: the last one leaves a whole file. Offsets
    of ``write_at`` must ascend; zeros lie between (a hole, where the file system has holes). ``like``: files whose bytes it
    gets; who may not read one of them may not read it, as far as they are local. ``soon``: the system begins to put a local
    file on the disk while it is written, so that a sync later has little to wait for. Raises OSError.
    """

    def __init__(self, temporary_folder: str, target: str, like: Iterable[str] = (), soon: bool = False) -> None:
        system, self._target = systems.resolve_to_write(target)
        self._soon = soon and system is None
        self._at = self._begun = 0
        self.written = 0
        """bytes written, holes not counted"""
        self._handle = -1
        self._sending: Sending | None = None
        if system is None:
            self._temporary = uris.join(systems.resolve(temporary_folder)[1], uuid.uuid4().hex)
            mode = mode_like(like)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._handle = os.open(self._temporary, flags, 0o666 if mode is None else 0o600)
            if mode is not None:
                os.fchmod(self._handle, mode)
        else:
            self._sending = open_sending(system, systems.resolve(temporary_folder)[1], self._target)

    def write_at(self, at: int, data: Buffer) -> None:
        """Write ``data`` at byte ``at``, which is not before the end of what was written."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # numpy shows its buffers to mypy from 3.12 on
        if at > self._at:
            self._skip_to(at)
        self.written += len(view)
        if self._sending is not None:
            self._sending.write(view)
            self._at += len(view)
            return
        while len(view):
            count = self._write_some(view)
            view = view[count:]
            self._at += count
        self._begin(_PIECE_BYTES)

    def _begin(self, least: int) -> None:
        """Have what was written since the last call begin its way to the disk, unless it is less than ``least`` bytes."""
        if self._soon and self._at - self._begun >= least and (call := _sync_file_range()) is not None:
            # What fails from here on is told by the sync (``folders.sync``).
            call(self._handle, self._begun, self._at - self._begun, _SYNC_FILE_RANGE_WRITE)
            self._begun = self._at

    def _write_some(self, view: memoryview) -> int:
        with systems.naming(self._temporary):
            count = os.pwrite(self._handle, view, self._at)
            if not count:
                raise OSError(errno.EIO, "nothing could be written")
            return count

    def append(self, data: Buffer) -> None:
        """Write ``data`` behind what was written."""
        self.write_at(self._at, data)

    def _skip_to(self, at: int) -> None:
        if self._sending is not None:
            self._sending.zeros(at - self._at)
        self._at = at

    def finish(self, size: int | None = None) -> None:
        """Publish the file; with ``size`` it gets so many bytes, with zeros at its end."""
        if self._sending is not None:
            if size is not None and size > self._at:
                self._skip_to(size)
            self._sending.finish()
            return
        with systems.naming(self._temporary):
            if size is not None:
                os.ftruncate(self._handle, size)
            self._begin(_LEAST_BYTES)
            self._close()
        os.replace(self._temporary, self._target)

    def _close(self) -> None:
        """Close the local handle, only once: it is gone even if closing it fails."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def abandon(self) -> None:
        """Leave no file. Raises nothing."""
        if self._sending is not None:
            self._sending.abandon()
            return
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def mode_like(paths: Iterable[str]) -> int | None:
    """Return the permissions that all of these local files give, and its owner's to read and write; None without a local
    file."""
    modes = [os.stat(inner).st_mode for system, inner in map(systems.resolve, paths) if system is None]
    return functools.reduce(int.__and__, modes) & 0o666 | 0o600 if modes else None


@contextlib.contextmanager
def writing(temporary_folder: str, target: str, like: Iterable[str] = (), soon: bool = False) -> Iterator[Writer]:
    """Yield a ``Writer`` for a block, which calls ``finish``; an error in the block leaves no file."""
    writer = Writer(temporary_folder, target, like, soon)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


def write_bytes(temporary_folder: str, target: str, parts: Iterable[Buffer]) -> None:
    """Write a small file from ``parts``, as a whole or not at all. Raises OSError."""
    with writing(temporary_folder, target) as writer:
        for part in parts:
            writer.append(part)
        writer.finish()
