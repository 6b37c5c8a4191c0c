"""Make, rename, copy, sync and remove folders and files as a whole."""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketmq_reindex.files import entries, systems, uris
from rocketmq_reindex.storage_format.showing import escape

# ---------------------------------------------------------------------------------------------------------------------- folders
# Make, rename, copy and sync folders and files as a whole.

REFLINK: Final = "reflink"
HARD: Final = "hard"
NONE: Final = "none"
"""How a copy may share its bytes with the old file."""
_REPLACE_ATTEMPTS: Final = 9
_KERNEL: Final = ("/proc/", "/sys/")
_FICLONE: Final = 0x40049409
"""Linux: share the bytes of a file; Python 3.10 has no name for it."""


def make_folder(path: str, below: str = "") -> None:
    """Make a folder, and the missing ones that it lies in.

    With ``below`` only folders below that one are made: raises FileNotFoundError when ``below`` itself is missing. Stores
    behind a URI do not check ``below``, and a bucket has no folders to make.
    """
    system, inner = systems.resolve(path)
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


def refuses(folder: str) -> str:
    """Return why nothing can be made in a local folder, as far as that shows without making anything; "" where it can."""
    # A file without a name, which nobody sees. Many file systems have none, and the kernel's own take no file at all.
    try:
        os.close(os.open(folder, getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return why(error)
        if f"{os.path.realpath(folder)}/".startswith(_KERNEL):
            return "a file system of the kernel's own"
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return os.strerror(errno.EROFS)
        if not os.access(folder, os.W_OK | os.X_OK):
            return os.strerror(errno.EACCES)
    return ""


def rename(source: str, target: str) -> None:
    """Rename within one file system; a file at ``target`` is replaced as a whole.

    In a bucket that is a copy: avoid it. Raises OSError.
    """
    system, inner = systems.resolve(source)
    if system is None:
        os.replace(inner, os.path.abspath(target))
    else:
        replace(system, inner, systems.resolve(target)[1])


def replace(system: systems.System, source: str, target: str) -> None:
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


def _is_absent(system: systems.System, inner: str) -> bool:
    return bool(system.fs.get_file_info(inner).type.name == "NotFound")


def _copy(system: systems.System, source: str, target: str, error: OSError) -> None:
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
    (system, inner), (target_system, inner_target) = systems.resolve(source), systems.resolve(target)
    if system is None or not system.flat or target_system is not system:
        return False
    try:
        system.fs.copy_file(inner, inner_target)
    except (OSError, NotImplementedError):
        # Not every store that speaks S3 copies. A read shows whether the file is missing.
        return False
    return True


def sync(folder: str, since: int = -1) -> None:
    """Make all that was written to the file system of ``folder`` durable; behind a URI it does nothing. Raises OSError.

    ``since``: a handle of a folder of it, opened before the writes that count, which stays open. A write that failed in the
    background is told to each handle that was open then, but to a new one only if no process was told before.
    """
    system, inner = systems.resolve(folder)
    if system is not None:
        return
    handle = os.open(inner, os.O_RDONLY | os.O_CLOEXEC) if since < 0 else since
    try:
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
        if handle != since:
            os.close(handle)


def handle_for_sync(folder: str, owner: object) -> int:
    """Return the handle ``since`` of ``sync``, which is closed when ``owner`` is gone; -1 behind a URI. Raises OSError."""
    system, inner = systems.resolve(folder)
    if system is not None:
        return -1
    handle = os.open(inner, os.O_RDONLY | os.O_CLOEXEC)
    weakref.finalize(owner, os.close, handle)
    return handle


def free_bytes(folder: str) -> int | None:
    """Return the free bytes of the file system of ``folder``; None where that cannot be known."""
    if systems.no_rename(folder):
        return None
    inner = os.path.abspath(folder)
    status = os.statvfs(inner)
    return status.f_bavail * status.f_frsize


def allocated(path: str, size: int) -> int:
    """Return the bytes that a file of ``size`` bytes takes in its file system: less where it has holes, and ``size`` behind a
    URI."""
    system, inner = systems.resolve(path)
    return size if system is not None else min(size, os.stat(inner).st_blocks * 512)


def link(source: str, target: str) -> bool:
    """Make a hard link to a local file. Return whether there is one now.

    A file at ``target`` stays as it is: another attempt of the same task made it.
    """
    (system, old), (target_system, new) = systems.resolve(source), systems.resolve(target)
    if system is not None or target_system is not None:
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
    """Make a local file that shares the bytes of another until one of the two is written to. Return whether there is one now.

    That works within one file system, and only in some (XFS, Btrfs). The file is made in ``temporary_folder``: one that a
    killed task leaves behind is empty, and must not have the name ``target``. A file at ``target`` is replaced.
    """
    (system, old_path), (target_system, new_path) = systems.resolve(source), systems.resolve(target)
    if system is not None or target_system is not None:
        return False
    temporary = uris.join(systems.resolve(temporary_folder)[1], uuid.uuid4().hex)
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


# --------------------------------------------------------------------------------------------------------------------- removing
# Remove folders and files as a whole, and say what keeps them there.

_ATTEMPTS: Final = 3
_REQUESTS_AT_ONCE: Final = 16
_REASON_LENGTH: Final = 200
_OF_A_KEY: Final = re.compile(r"- key '.*': ([^':\n]+)")
"""One line of the list that pyarrow makes where a bucket refuses to remove some of many objects."""


def remove_tree(path: str) -> str:
    """Remove a folder or file, if there is one. Symbolic links are not followed. Raises nothing.

    Return why something of it is still there, as one line; "" when nothing is.
    """
    system, inner = systems.resolve(path)
    if system is None:
        return _remove_local(inner)
    try:
        kind = entries.entry_of(path).kind
        if kind == entries.FOLDER:
            _remove_folder(system, inner)
        elif kind != entries.ABSENT:
            system.fs.delete_file(inner)
    except OSError as error:
        # Somebody else may have removed the same at this moment.
        with contextlib.suppress(OSError):
            kind = entries.entry_of(path).kind
            # In a bucket a folder without objects is nothing that could be removed.
            if kind == entries.ABSENT or (system.flat and kind == entries.FOLDER and not entries.below(path)):
                return ""
        return why(error)
    return ""


def why(error: OSError) -> str:
    """Return the reason that an error of a store gives, as one line. pyarrow may list each object that could not be removed."""
    text = error.strerror or str(error)
    of_a_key = _OF_A_KEY.search(text)
    return escape(of_a_key[1] if of_a_key else (text.splitlines() or [type(error).__name__])[0], _REASON_LENGTH)


def _remove_local(path: str) -> str:
    for _ in range(_ATTEMPTS):
        # rmtree raises what closing a folder's handle raises, whatever it ignores.
        with contextlib.suppress(OSError):
            shutil.rmtree(path, ignore_errors=True) if _is_folder(path) else os.unlink(path)
        if not os.path.lexists(path):
            return ""
    try:
        # What was ignored above is the reason now.
        shutil.rmtree(path) if _is_folder(path) else os.unlink(path)
    except OSError as error:
        # Somebody else may have removed the same at this moment.
        return why(error) if os.path.lexists(path) else ""
    return ""


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _remove_folder(system: systems.System, inner: str) -> None:
    try:
        system.fs.delete_dir(inner)
    except OSError:
        if not system.flat:
            raise
        _remove_one_by_one(system, inner)
    if system.flat:
        _remove_empty(system, inner)


def _remove_empty(system: systems.System, inner: str) -> None:
    """Remove folders that a bucket goes on listing although no object is in them: SeaweedFS does.

    It forgets such a folder once its mark, an empty object, has been made and removed. Elsewhere this finds nothing.
    """
    from pyarrow import fs as pafs

    folders, pending = list[str](), [inner] if system.fs.get_file_info(inner).type.name == "Directory" else []
    while pending:
        folders.append(folder := pending.pop())
        infos = [info for info in system.fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True)) if info.base_name]
        if any(info.type.name != "Directory" for info in infos):
            return  # somebody has written there
        pending += [info.path for info in infos]
    for folder in reversed(folders):
        system.fs.create_dir(folder, recursive=False)
        system.fs.delete_dir(folder)


def _remove_one_by_one(system: systems.System, inner: str) -> None:
    """Remove each object by a request of its own: some servers that speak S3 do not know the one that removes many.

    Raises OSError. Where even the first object may not be removed, no other one is tried.
    """
    from pyarrow import fs as pafs

    infos = system.fs.get_file_info(pafs.FileSelector(inner, recursive=True, allow_not_found=True))
    files = [info.path for info in infos if info.type.name == "File"]
    for first in files[:1]:
        system.fs.delete_file(first)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="remove") as pool:
        list(pool.map(system.fs.delete_file, files[1:]))
    # pyarrow marks the folder of each removed object with an empty object. Without files in it that is one request.
    folders = [info.path for info in infos if info.type.name == "Directory"]
    for folder in (*sorted(folders, key=len, reverse=True), inner):
        system.fs.delete_dir(folder)
