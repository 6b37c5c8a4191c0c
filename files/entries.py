"""Look up what is at a path, and what is in a folder."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rocketmq_reindex.files.systems import System, resolve
from rocketmq_reindex.files.uris import join

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
