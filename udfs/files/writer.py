"""Write files that appear only when they are whole. A local one is written aside and renamed; ``sending`` does the others."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rocketmq_reindex.udfs.files.sending import Sending, open_sending
from rocketmq_reindex.udfs.files.systems import naming, resolve, resolve_to_write
from rocketmq_reindex.udfs.files.uris import join

if TYPE_CHECKING:
    import numpy.typing as npt

    Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]


class Writer:
    """Writes the file ``target`` by way of the folder ``temporary_folder``, and publishes it when it is whole.

    Attempts of one task never share a temporary name, and they write the same bytes: the last one leaves a whole file. Offsets
    of ``write_at`` must ascend; zeros lie between (a hole, where the file system has holes). ``like``: files whose bytes it
    gets; who may not read one of them may not read it, as far as they are local. Raises OSError.
    """

    def __init__(self, temporary_folder: str, target: str, like: Iterable[str] = ()) -> None:
        system, self._target = resolve_to_write(target)
        self._at = 0
        self.written = 0
        """bytes written, holes not counted"""
        self._handle = -1
        self._sending: Sending | None = None
        if system is None:
            self._temporary = join(resolve(temporary_folder)[1], uuid.uuid4().hex)
            mode = mode_like(like)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._handle = os.open(self._temporary, flags, 0o666 if mode is None else 0o600)
            if mode is not None:
                os.fchmod(self._handle, mode)
        else:
            self._sending = open_sending(system, resolve(temporary_folder)[1], self._target)

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

    def _write_some(self, view: memoryview) -> int:
        with naming(self._temporary):
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
        with naming(self._temporary):
            if size is not None:
                os.ftruncate(self._handle, size)
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
    """The permissions that all of these local files give, and its owner's to read and write; None without a local file."""
    found = [os.stat(inner).st_mode for system, inner in map(resolve, paths) if system is None]
    return functools.reduce(int.__and__, found) & 0o666 | 0o600 if found else None


@contextlib.contextmanager
def writing(temporary_folder: str, target: str, like: Iterable[str] = ()) -> Iterator[Writer]:
    """A ``Writer`` for a block, which calls ``finish``; an error in the block leaves no file."""
    writer = Writer(temporary_folder, target, like)
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
