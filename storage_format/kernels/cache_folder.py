"""The folder of compiled record loops. numba unpickles what lies there, so nobody else may be able to write it.

This is the only module of storage_format that looks at a folder (``pyproject.toml`` says so): ``kernels.jit`` needs it when it
is imported, in every process, before anything could pass the folder in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pkgutil
import stat
import threading
import zlib
from typing import TYPE_CHECKING, Final, cast

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

if TYPE_CHECKING:
    from importlib.abc import FileLoader, PathEntryFinder
    from importlib.machinery import ModuleSpec

VARIABLE: Final = "NUMBA_CACHE_DIR"
_SHARED: Final = stat.S_IWGRP | stat.S_IWOTH


def _stamp() -> int:
    """The CRC-32 of the names and sources of all modules of this package, however deep they lie, in a folder or in a zip."""
    from rocketmq_reindex import storage_format

    crc = 0
    modules = pkgutil.walk_packages(storage_format.__path__, f"{storage_format.__name__}.")
    for module in sorted(modules, key=lambda m: m.name):
        finder = cast("PathEntryFinder", module.module_finder)
        spec = cast("ModuleSpec", finder.find_spec(module.name))
        source = cast("FileLoader", spec.loader).get_data(str(spec.origin))
        crc = zlib.crc32(b"%s %d\n%s" % (module.name.encode(), len(source), source), crc)
    return crc


STAMP: Final = _stamp()
"""A change anywhere in the package makes all compiled code anew: a loop has the code and constants of other modules in it."""


def find() -> str:
    """The path of the folder, without links in it; "" where there is none. It is made where it does not exist.

    It is in the folder that VARIABLE names, else ``__pycache__`` beside this file, else in the user's own cache. Raises
    InputError where others may write to the folder that VARIABLE names.
    """
    if named := os.environ.get(VARIABLE, ""):
        folder, trouble = _own(os.path.realpath(named))
        if trouble:
            raise InputError(f"{VARIABLE}: {trouble}: compiled code is run as it is found: name a folder of your own, mode 700")
        return folder
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__pycache__")
    # Python keeps its own compiled code there: who may write there may change this package.
    with contextlib.suppress(OSError):
        os.makedirs(beside, exist_ok=True)
        if os.access(beside, os.W_OK | os.X_OK):
            return beside
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # For a user without a home it is relative, and so in the working folder.
    return _own(os.path.join(os.path.realpath(cache), "numba"))[0] if os.path.isabs(cache) else ""


_LOCK: Final = "rmq-reindex.lock"
_POLLS, _POLL = 1200, 0.05
"""How long a process waits for what another compiles: a minute, then it compiles by itself."""
_locks: dict[str, int] = {}
"""The open lock file of each folder. It stays open: to close it would give up all locks of the process."""
_held: dict[str, int] = {}


def wait_for_others(folder: str, name: str) -> bool:
    """Wait until nobody else compiles ``name``, and lock it; returns whether somebody did.

    A lock is a byte of one file: it ends with its process, and a process that is forked does not have it.
    """
    waited = False
    with contextlib.suppress(OSError):
        if folder not in _locks:
            _locks[folder] = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        file = _locks[folder]
        for _ in range(_POLLS):
            if _taken(file, name):
                _held[name] = file
                break
            waited = True
            threading.Event().wait(_POLL)
    return waited


def _taken(file: int, name: str) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
    except (BlockingIOError, PermissionError):
        return False
    return True


def let_others_go_on(name: str) -> None:
    """Give up the lock on ``name``, where this process has it."""
    with contextlib.suppress(OSError):
        if name in _held:
            fcntl.lockf(_held.pop(name), fcntl.LOCK_UN, 1, zlib.crc32(name.encode()))


def _own(around: str) -> tuple[str, str]:
    """A folder in ``around`` that is the user's alone, "" where none can be made, and what is wrong with it."""
    folder = os.path.join(around, f"rmq-reindex-{STAMP:08x}")
    with contextlib.suppress(OSError):
        _make(folder)
    try:
        trouble = _trouble(folder)
    except OSError:
        return "", ""
    if trouble:
        return "", trouble
    return folder if os.access(folder, os.W_OK | os.X_OK) else "", ""


def _make(folder: str) -> None:
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder))
        os.mkdir(folder, 0o700)


def _trouble(folder: str) -> str:
    """Why others may put files into a folder, or another folder into its place; "" where only the user and root may.

    In a sticky folder, as /tmp is, nobody else can rename it. Raises OSError.
    """
    looked = os.lstat(folder)
    if not stat.S_ISDIR(looked.st_mode):
        return f"{escape(folder)} is no folder"
    if looked.st_uid != os.getuid():
        return f"{escape(folder)} belongs to somebody else"
    if looked.st_mode & _SHARED:
        return f"others may write to {escape(folder)}"
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        looked = os.lstat(folder)
        if looked.st_uid not in (0, os.getuid()):
            return f"{escape(folder)} belongs to somebody else"
        if looked.st_mode & _SHARED and not looked.st_mode & stat.S_ISVTX:
            return f"others may write to {escape(folder)}"
    return ""
