"""File operations that fail: the n-th one of a build, or the one at a named point, ends in an error, half a write or a kill.

The modules of the project that touch files see ``os``, ``fcntl``, ``ctypes`` through a stand-in that counts what is done to
paths below one folder. The operations themselves are the real ones, on a real disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import genericpath
import mmap
import os
import posixpath
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.files import entries, folders, reading, systems, uris, writer
from rocketmq_reindex.jobs.fetching import record, swap
from rocketmq_reindex.jobs.publishing import local as output_local

OPERATIONS: Final = frozenset({
    "open", "close", "stat", "lstat", "fstat", "statvfs", "listdir", "scandir", "mkdir", "rmdir", "unlink", "link", "rename",
    "replace",
    "preadv", "pwrite", "ftruncate", "fsync", "flock", "syncfs", "renameat2",
})  # fmt: skip
"""What a build does to files; all of it can fail."""
GROWING: Final = frozenset(
    {"open", "mkdir", "pwrite", "ftruncate", "link", "rename", "replace", "fsync", "syncfs", "renameat2"}
)
"""What can find no space."""
KINDS: Final = {
    "EIO": OPERATIONS,
    "ENOSPC": GROWING,
    "full": frozenset({"open", "mkdir", "pwrite"}),
    "short": frozenset({"pwrite", "preadv"}),
    "nothing": frozenset({"pwrite"}),
    "close": frozenset({"close"}),
    "kill": OPERATIONS,
    "kill-after": OPERATIONS,
    "interrupt": OPERATIONS,
}
"""Kinds of faults and the operations they can hit. ``full``: all from the n-th on; ``short``: half is read or written.
``interrupt``: SIGTERM behind the operation."""
_TOUCHING: Final = (
    entries, folders, reading, folders, systems, uris, writer, output_local, record, swap, record, swap
)  # fmt: skip
"""Modules of the project that touch files."""
_HANDLES: Final = "/proc/self/fd/"
Matches = Callable[[str, str], bool]


def any_operation(_name: str, _path: str) -> bool:
    return True


@dataclass
class Fault:
    """Hits the ``number``-th operation (from 1) that its kind can hit and that ``matches`` (operation, path).

    With ``times`` so many one after another.
    """

    kind: str
    number: int = 1
    matches: Matches = any_operation
    times: int = 1
    seen: int = 0
    fired: int = 0
    where: str = ""
    """the operation that was hit"""
    handles: dict[int, str] = field(default_factory=dict)

    def call(self, name: str, function: Callable[..., Any], path: str, *words: Any, **more: Any) -> Any:
        """The operation, or what the fault makes of it."""
        if name not in KINDS[self.kind] or not self.matches(name, path):
            return function(*words, **more)
        self.seen += 1
        if self.seen < self.number or (self.seen >= self.number + self.times and self.kind != "full"):
            return function(*words, **more)
        if self.kind == "full" and name == "open" and not words[1] & os.O_CREAT:
            return function(*words, **more)
        self.fired += 1
        self.where = self.where or f"{name} {path}"
        return self._hit(name, function, path, words, more)

    def _hit(self, name: str, function: Callable[..., Any], path: str, words: tuple[Any, ...], more: dict[str, Any]) -> Any:
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "kill-after":
            function(*words, **more)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "interrupt":
            result = function(*words, **more)
            if name == "open":
                self.handles[result] = path
            os.kill(os.getpid(), signal.SIGTERM)
            return result
        if self.kind == "nothing":
            return 0
        if self.kind == "short" and name == "pwrite":
            handle, view, at = words
            return function(handle, view[: (len(view) + 1) // 2], at)
        if self.kind == "short":
            handle, (view,), at = words
            return function(handle, [view[: (len(view) + 1) // 2]], at)
        if name == "close":
            # As Linux does: an error tells of lost writes, the handle is gone.
            function(*words)
        code = errno.ENOSPC if self.kind in ("ENOSPC", "full") else errno.EIO
        if name in ("syncfs", "renameat2"):
            ctypes.set_errno(code)
            return -1
        raise OSError(code, os.strerror(code), path if isinstance(words[0], (str, bytes)) else None)


class _Module:
    """A module whose operations on paths below ``root`` go through the fault."""

    def __init__(self, module: Any, fault: Fault, root: str) -> None:
        self._module, self._fault, self._root = module, fault, root

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return functools.partial(self._call, name, value) if name in OPERATIONS else value

    def _path(self, words: tuple[Any, ...], more: dict[str, Any]) -> str:
        # rename: the later name tells more.
        first = words[1] if len(words) > 1 and isinstance(words[1], (str, os.PathLike)) else words[0]
        if isinstance(first, int):
            return self._fault.handles.get(first, "")
        text = os.fsdecode(first)
        if text.startswith(_HANDLES):
            # A folder that is held by its handle.
            handle, slash, rest = text.removeprefix(_HANDLES).partition("/")
            text = os.readlink(_HANDLES + handle) + slash + rest
        folder = more.get("dir_fd")
        return text if folder is None else f"{self._fault.handles.get(folder, '')}/{text}"

    def _call(self, name: str, function: Callable[..., Any], *words: Any, **more: Any) -> Any:
        path = self._path(words, more)
        if not path.startswith(self._root):
            return function(*words, **more)
        result = self._fault.call(name, function, path, *words, **more)
        if name == "open":
            self._fault.handles[result] = path
        elif name == "close":
            self._fault.handles.pop(words[0], None)
        return result


class _Ctypes:
    """``ctypes`` whose libc has the two calls that Python lacks."""

    def __init__(self, fault: Fault, root: str, exchange: bool) -> None:
        self._fault, self._root, self._exchange = fault, root, exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(ctypes, name)

    def CDLL(self, *words: Any, **more: Any) -> Any:
        libc = ctypes.CDLL(*words, **more)
        fault, exchange = self._fault, self._exchange

        class Libc:
            def syncfs(self, handle: int) -> Any:
                return fault.call("syncfs", libc.syncfs, fault.handles.get(handle, ""), handle)

            def renameat2(self, *words: Any) -> Any:
                if not exchange:
                    ctypes.set_errno(errno.EINVAL)
                    return -1
                return fault.call("renameat2", libc.renameat2, os.fsdecode(words[3]), *words)

        return Libc()


class _NoMapping:
    """Nothing can be mapped: each read of the log is an operation then."""

    def __getattr__(self, name: str) -> Any:
        return getattr(mmap, name)

    def mmap(self, *_words: Any, **_more: Any) -> Any:
        raise OSError(errno.ENODEV, "mapped files are for another test")


@contextlib.contextmanager
def faulty(fault: Fault, root: str, exchange: bool = True) -> Iterator[Fault]:
    """``fault`` hits what the project does below ``root``. Without ``exchange`` names cannot be swapped, as on NFS."""
    stand_ins: list[tuple[Any, str, Any]] = [
        (module, "os", _Module(os, fault, root)) for module in (*_TOUCHING, shutil, genericpath, posixpath)
    ]
    stand_ins.append((reading, "mmap", _NoMapping()))
    stand_ins.append((output_local, "fcntl", _Module(fcntl, fault, root)))
    stand_ins += [(module, "ctypes", _Ctypes(fault, root, exchange)) for module in (folders, output_local)]
    before = [getattr(module, name) for module, name, _ in stand_ins]
    for module, name, stand_in in stand_ins:
        setattr(module, name, stand_in)
    try:
        yield fault
    finally:
        for (module, name, _), old in zip(stand_ins, before, strict=True):
            setattr(module, name, old)
