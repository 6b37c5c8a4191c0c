"""Make, rename, copy and sync folders and files as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import uuid
from typing import Final

from rocketmq_reindex.udfs.files.systems import System, no_rename, resolve
from rocketmq_reindex.udfs.files.uris import join

_REPLACE_ATTEMPTS: Final = 9
_FICLONE: Final = 0x40049409
"""Linux: share the bytes of a file; Python 3.10 has no name for it."""


def make_folder(path: str, below: str = "") -> None:
    """Make a folder, and the missing ones that it lies in.

    With ``below`` only folders below that one are made: raises FileNotFoundError when ``below`` itself is missing. Stores
    behind a URI do not check ``below``, and a bucket has no folders to make.
    """
    system, inner = resolve(path)
    if system is not None:
        if not system.flat:
            system.fs.create_dir(inner, recursive=True)
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


def rename(source: str, target: str) -> None:
    """Rename within one file system; a file at ``target`` is replaced as a whole.

    In a bucket that is a copy: avoid it. Raises OSError.
    """
    system, inner = resolve(source)
    if system is None:
        os.replace(inner, os.path.abspath(target))
    else:
        replace(system, inner, resolve(target)[1])


def replace(system: System, source: str, target: str) -> None:
    """Rename a file of ``system``; ``source`` and ``target`` are paths there. Raises OSError.

    HDFS does not rename onto another file, and its web interface reports no error then.
    """
    for attempt in range(_REPLACE_ATTEMPTS):
        refused: OSError | None = None
        try:
            system.fs.move(source, target)
            if system.flat:
                return
        except OSError as error:
            refused = error
        if _is_absent(system, source):
            if refused is None or not _is_absent(system, target):
                return  # renamed, even where the answer was lost
            raise refused
        if not _is_absent(system, target):
            # Two attempts of a task write the same bytes: the last one may replace the other, whoever removes that.
            with contextlib.suppress(OSError):
                system.fs.delete_file(target)
        elif refused is not None and attempt:
            _copy(system, source, target, refused)
            return
    raise refused or OSError(errno.EEXIST, "others write there again and again", target)


def _is_absent(system: System, inner: str) -> bool:
    return bool(system.fs.get_file_info(inner).type.name == "NotFound")


def _copy(system: System, source: str, target: str, error: OSError) -> None:
    """Copy instead: some mounts of object stores rename no file. Raises ``error``, of the rename, if no copy works either."""
    try:
        system.fs.copy_file(source, target)
    except (OSError, NotImplementedError):
        raise error from None
    system.fs.delete_file(source)


def copy_in_store(source: str, target: str) -> bool:
    """Have a bucket copy a file within itself, so that none of its bytes comes here.

    Returns False where that does not work: then read and write the file.
    """
    (system, inner), (there, wanted) = resolve(source), resolve(target)
    if system is None or not system.flat or there is not system:
        return False
    try:
        system.fs.copy_file(inner, wanted)
    except (OSError, NotImplementedError):
        # Not every store that speaks S3 copies. A read shows whether the file is missing.
        return False
    return True


def sync(folder: str) -> None:
    """Make all that was written to the file system of ``folder`` durable; behind a URI it does nothing. Raises OSError."""
    system, inner = resolve(folder)
    if system is not None:
        return
    handle = os.open(inner, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # It reports each write of the run that failed in the background.
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(handle) != 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSYS, errno.ENOTSUP):
                os.sync()
                return
            raise OSError(code, os.strerror(code), inner)
    finally:
        os.close(handle)


def free_bytes(folder: str) -> int | None:
    """The free bytes of the file system of ``folder``; None where that cannot be known."""
    if no_rename(folder):
        return None
    inner = os.path.abspath(folder)
    found = os.statvfs(inner)
    return found.f_bavail * found.f_frsize


def allocated(path: str, size: int) -> int:
    """The bytes that a file of ``size`` bytes takes in its file system: less where it has holes, and ``size`` behind a URI."""
    system, inner = resolve(path)
    return size if system is not None else min(size, os.stat(inner).st_blocks * 512)


def link(source: str, target: str) -> bool:
    """Make a hard link to a local file; returns whether there is one now.

    A file at ``target`` stays as it is: another attempt of the same task made it.
    """
    (system, old), (there, new) = resolve(source), resolve(target)
    if system is not None or there is not None:
        return False
    try:
        # A link to a symbolic link would lead nowhere from its new folder.
        os.link(os.path.realpath(old), new)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def clone(source: str, temporary_folder: str, target: str) -> bool:
    """Make a local file that shares the bytes of another until one of the two is written to; returns whether there is one now.

    That works within one file system, and only in some (XFS, Btrfs). The file is made in ``temporary_folder``: one that a
    killed task leaves behind is empty, and must not have the name ``target``. A file at ``target`` is replaced.
    """
    (system, old_path), (there, new_path) = resolve(source), resolve(target)
    if system is not None or there is not None:
        return False
    temporary = join(resolve(temporary_folder)[1], uuid.uuid4().hex)
    try:
        with open(old_path, "rb") as old, open(temporary, "xb", opener=_private) as new:
            os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o666 | 0o600)
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        os.replace(temporary, new_path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
