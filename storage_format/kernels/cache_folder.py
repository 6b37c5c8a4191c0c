"""Where compiled record loops are kept: numba unpickles what lies there, so nobody else may be able to write it.

This module and ``cache_files`` are the only ones here that look at files (``pyproject.toml`` says so): numba asks for them
when ``storage_format.kernels.jit`` is imported, in every process, before anything else could hand the folder in.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.kernels import stamp
from rocketmq_reindex.storage_format.names import escape

VARIABLE: Final = "NUMBA_CACHE_DIR"
SUFFIX: Final = ".nbc"
"""of a file of compiled code"""
_SHARED: Final = stat.S_IWGRP | stat.S_IWOTH
_PREFIX: Final = "rmq-reindex-"
_UNUSED: Final = 30 * 86400
"""seconds after which a folder of other sources is removed"""


def find() -> str:
    """The folder to keep them in, made if need be, without links in its path; "" where there is none.

    It lies in the folder that VARIABLE names, else in ``__pycache__`` beside this file, else in the user's own cache. Its name
    is the stamp of the sources: code of other sources, or of another checkout, is in another folder. Raises InputError where
    others may write to the named one.
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
        folder = _inside(beside)
        _make(folder)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # For a user without a home it is relative, and so in the working folder.
    return _own(os.path.join(os.path.realpath(cache), "numba"))[0] if os.path.isabs(cache) else ""


def holds(loop: str) -> bool:
    """Whether compiled code of a function is kept whose ``module.name`` begins with ``loop``. Raises InputError as ``find``."""
    folder = find()
    with contextlib.suppress(OSError):
        return bool(folder) and any(name.startswith(loop) and name.endswith(SUFFIX) for name in os.listdir(folder))
    return False


def _own(around: str) -> tuple[str, str]:
    """A folder in ``around`` that is the user's alone, "" where none can be made, and what is wrong with it."""
    folder = _inside(around)
    with contextlib.suppress(OSError):
        _make(folder)
    try:
        trouble = _trouble(folder)
    except OSError:
        return "", ""
    if trouble:
        return "", trouble
    return folder if os.access(folder, os.W_OK | os.X_OK) else "", ""


def _inside(around: str) -> str:
    return os.path.join(around, _PREFIX + stamp.at_start())


def _make(folder: str) -> None:
    """Make the folder of compiled code, or note that it is used; beside a new one, remove what nobody uses any more."""
    if os.path.isdir(folder):
        os.utime(folder)
    elif _made(folder):
        made, around = os.stat(folder), os.path.dirname(folder)
        with os.scandir(around) as beside:
            unused = [entry.path for entry in beside if entry.name.startswith(_PREFIX) and _is_unused(entry, made)]
        for path in unused:
            _remove(path)


def _made(folder: str) -> bool:
    """Make a folder and those around it for the user alone; False where another process was first."""
    if not os.path.isdir(os.path.dirname(folder)):
        _made(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return False
    return True


def _is_unused(entry: os.DirEntry[str], made: os.stat_result) -> bool:
    """Whether a folder is the user's and was last used long before another was made."""
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == made.st_uid and found.st_mtime < made.st_mtime - _UNUSED


def _remove(folder: str) -> None:
    """Remove a folder of compiled code, in which there are files only."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as files:
            for file in files:
                os.unlink(file.path)
        os.rmdir(folder)


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
