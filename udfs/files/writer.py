"""Write files that appear when they are whole: local ones aside and renamed, others as their store makes that true."""

from __future__ import annotations

import contextlib
import errno
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
    """Writes one file aside and moves it to its place when it is whole.

    Attempts of the same task never share a temporary name, and write the same bytes, so whichever comes last leaves a whole
    file. Offsets given to ``write_at`` must rise; what lies between is zeros (a hole where the file system can).
    ``own``: no other attempt ever writes ``target``; in a bucket it is then written at once instead of being held till the end.
    """

    def __init__(self, temporary_folder: str, target: str, own: bool = False) -> None:
        system, self._target = resolve_to_write(target)
        self._at = 0
        self.written = 0
        """bytes written, holes not counted"""
        self._handle = -1
        self._sending: Sending | None = None
        if system is None:
            self._temporary = join(resolve(temporary_folder)[1], uuid.uuid4().hex)
            self._handle = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        else:
            self._sending = open_sending(system, resolve(temporary_folder)[1], self._target, own)

    def write_at(self, at: int, data: Buffer) -> None:
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
        self.write_at(self._at, data)

    def _skip_to(self, at: int) -> None:
        if self._sending is not None:
            self._sending.zeros(at - self._at)
        self._at = at

    def finish(self, size: int | None = None) -> None:
        """Give the file its full size and move it to its place."""
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
        """Close the local handle, once: it is gone whatever close says."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def abandon(self) -> None:
        if self._sending is not None:
            self._sending.abandon()
            return
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


@contextlib.contextmanager
def writing(temporary_folder: str, target: str, own: bool = False) -> Iterator[Writer]:
    """A Writer whose file appears only when the body calls ``finish``; anything else leaves nothing."""
    writer = Writer(temporary_folder, target, own)
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
