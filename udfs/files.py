"""The one thin layer over pyarrow.fs: every file of the input, the output and the staging area is reached through here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyarrow import fs as pafs

from storage_format.errors import InputError

Buffer = bytes | memoryview | npt.NDArray[Any]
FILE, FOLDER, OTHER, ABSENT = "file", "folder", "other", "absent"
_KINDS: Final = {
    pafs.FileType.File: FILE,
    pafs.FileType.Directory: FOLDER,
    pafs.FileType.NotFound: ABSENT,
    pafs.FileType.Unknown: OTHER,
}


@dataclass(frozen=True)
class Entry:
    """One file or folder: size in bytes, modification time in nanoseconds since 1970."""

    name: str
    path: str
    kind: str
    size: int
    modified: int


def _resolve(path: str) -> tuple[pafs.FileSystem, str]:
    if "://" in path:
        system, inner = pafs.FileSystem.from_uri(path)
        return system, str(inner)
    return pafs.LocalFileSystem(), os.path.abspath(path)


def join(folder: str, *names: str) -> str:
    """A path below ``folder``; ``names`` are validated components."""
    return "/".join([folder.rstrip("/"), *names])


def _entry(info: pafs.FileInfo, path: str) -> Entry:
    return Entry(info.base_name, path, _KINDS[info.type], info.size or 0, info.mtime_ns or 0)


def look(path: str) -> Entry:
    """What stands at ``path``."""
    system, inner = _resolve(path)
    return _entry(system.get_file_info(inner), path)


def listing(folder: str) -> list[Entry]:
    """The entries of a folder by name."""
    system, inner = _resolve(folder)
    infos = system.get_file_info(pafs.FileSelector(inner))
    return sorted((_entry(info, join(folder, info.base_name)) for info in infos), key=lambda e: e.name)


class Reader:
    """Reads ranges of one file into arrays that the caller owns."""

    def __init__(self, path: str) -> None:
        self.path = path
        system, inner = _resolve(path)
        self._file = system.open_input_file(inner)

    def read_into(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out`` from byte ``at`` on. Raises InputError when the file ends before."""
        view = out.data
        self._file.seek(at)
        while len(view):
            got = self._file.readinto(view)
            if not got:
                raise InputError(f"{self.path}: ends at byte {at}, shorter than when the run began: input changed")
            view = view[got:]
            at += got

    def read(self, at: int, count: int) -> bytes:
        out = np.empty(count, np.uint8)
        self.read_into(at, out)
        return out.tobytes()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def read_bytes(path: str) -> bytes:
    system, inner = _resolve(path)
    with system.open_input_stream(inner) as stream:
        return bytes(stream.read())


def make_folder(path: str) -> None:
    system, inner = _resolve(path)
    system.create_dir(inner, recursive=True)


def remove_tree(path: str) -> None:
    """Remove a folder or file; nothing happens when there is none. Symbolic links are not followed."""
    system, inner = _resolve(path)
    if isinstance(system, pafs.LocalFileSystem):
        if os.path.islink(inner) or not os.path.isdir(inner):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(inner)
        else:
            shutil.rmtree(inner, ignore_errors=True)
        return
    if system.get_file_info(inner).type == pafs.FileType.Directory:
        system.delete_dir(inner)


def rename(source: str, target: str) -> None:
    """Rename within one file system; a file at ``target`` is replaced as a whole."""
    system, inner = _resolve(source)
    if isinstance(system, pafs.LocalFileSystem):
        os.replace(inner, os.path.abspath(target))
    else:
        system.move(inner, _resolve(target)[1])


class Writer:
    """Writes one file aside and moves it to its place when it is whole.

    Attempts of the same task never share a temporary name, and write the same bytes, so whichever comes last leaves a whole
    file. Offsets given to ``write_at`` must rise; what lies between is zeros (a hole where the file system can).
    """

    def __init__(self, temporary_folder: str, target: str) -> None:
        self._system, self._target = _resolve(target)
        self._temporary = join(_resolve(temporary_folder)[1], uuid.uuid4().hex)
        self._local = isinstance(self._system, pafs.LocalFileSystem)
        self._at = 0
        self.written = 0
        """bytes written, holes not counted"""
        if self._local:
            self._stream: Any = open(self._temporary, "xb", buffering=0)  # noqa: SIM115
        else:
            self._stream = self._system.open_output_stream(self._temporary)

    def write_at(self, at: int, data: Buffer) -> None:
        view = (data.data if isinstance(data, np.ndarray) else memoryview(data)).cast("B")
        if at > self._at:
            self._skip_to(at)
        self._at += len(view)
        self.written += len(view)
        while len(view):
            view = view[self._stream.write(view) or len(view) :]

    def append(self, data: Buffer) -> None:
        self.write_at(self._at, data)

    def _skip_to(self, at: int) -> None:
        if self._local:
            self._stream.seek(at)
        else:
            zeros = bytes(1 << 20)
            for low in range(self._at, at, len(zeros)):
                self._stream.write(zeros[: at - low])
        self._at = at

    def finish(self, size: int | None = None) -> None:
        """Give the file its full size and move it to its place."""
        if size is not None and self._local:
            self._stream.truncate(size)
        elif size is not None and size > self._at:
            self._skip_to(size)
        self._stream.close()
        if self._local:
            os.replace(self._temporary, self._target)
        else:
            self._system.move(self._temporary, self._target)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(OSError):
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
    if not isinstance(system, pafs.LocalFileSystem):
        return
    handle = os.open(inner, os.O_RDONLY)
    try:
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
    return shutil.disk_usage(inner).free if isinstance(system, pafs.LocalFileSystem) else None
