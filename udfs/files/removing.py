"""Remove folders and files as a whole, and say what keeps them there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.entries import ABSENT, FOLDER, below, entry_of
from rocketmq_reindex.udfs.files.systems import System, resolve

_ATTEMPTS: Final = 3
_REQUESTS_AT_ONCE: Final = 16
_REASON_LENGTH: Final = 200
_OF_A_KEY: Final = re.compile(r"- key '.*': ([^':\n]+)")
"""One line of the list that pyarrow makes where a bucket refuses to remove some of many objects."""


def remove_tree(path: str) -> str:
    """Remove a folder or file, if there is one. Symbolic links are not followed. Raises nothing.

    Returns why something of it is still there, as one line; "" when nothing is.
    """
    system, inner = resolve(path)
    if system is None:
        return _remove_local(inner)
    try:
        kind = entry_of(path).kind
        if kind == FOLDER:
            _remove_folder(system, inner)
        elif kind != ABSENT:
            system.fs.delete_file(inner)
    except OSError as error:
        # Somebody else may have removed the same at this moment.
        with contextlib.suppress(OSError):
            kind = entry_of(path).kind
            # In a bucket a folder without objects is nothing that could be removed.
            if kind == ABSENT or (system.flat and kind == FOLDER and not below(path)):
                return ""
        return why(error)
    return ""


def why(error: OSError) -> str:
    """The reason that an error of a store gives, as one line. pyarrow may list each object that could not be removed."""
    text = error.strerror or str(error)
    one = _OF_A_KEY.search(text)
    return escape(one[1] if one else (text.splitlines() or [type(error).__name__])[0], _REASON_LENGTH)


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


def _remove_folder(system: System, inner: str) -> None:
    try:
        system.fs.delete_dir(inner)
    except OSError:
        if not system.flat:
            raise
        _remove_one_by_one(system, inner)
    if system.flat:
        _remove_empty(system, inner)


def _remove_empty(system: System, inner: str) -> None:
    """Remove folders that a bucket goes on listing although no object is in them: SeaweedFS does.

    It forgets such a folder once its mark, an empty object, has been made and removed. Elsewhere this finds nothing.
    """
    from pyarrow import fs as pafs

    found, left = list[str](), [inner] if system.fs.get_file_info(inner).type.name == "Directory" else []
    while left:
        found.append(folder := left.pop())
        there = [info for info in system.fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True)) if info.base_name]
        if any(info.type.name != "Directory" for info in there):
            return  # somebody has written there
        left += [info.path for info in there]
    for folder in reversed(found):
        system.fs.create_dir(folder, recursive=False)
        system.fs.delete_dir(folder)


def _remove_one_by_one(system: System, inner: str) -> None:
    """Remove each object by a request of its own: some servers that speak S3 do not know the one that removes many.

    Raises OSError. Where even the first object may not be removed, no other one is tried.
    """
    from pyarrow import fs as pafs

    found = system.fs.get_file_info(pafs.FileSelector(inner, recursive=True, allow_not_found=True))
    files = [info.path for info in found if info.type.name == "File"]
    for first in files[:1]:
        system.fs.delete_file(first)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="remove") as pool:
        list(pool.map(system.fs.delete_file, files[1:]))
    # pyarrow marks the folder of each removed object with an empty object. Without files in it that is one request.
    folders = [info.path for info in found if info.type.name == "Directory"]
    for folder in (*sorted(folders, key=len, reverse=True), inner):
        system.fs.delete_dir(folder)
