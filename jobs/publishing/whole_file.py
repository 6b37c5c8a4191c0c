"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

_COPIED_BYTES: Final = 16 << 20


def check_writable(option: str, path: str) -> None:
    """Raise InputError for the file that an option names, where no file can be written."""
    if not path:
        raise InputError(f"{option}: is empty: name a file")
    if os.path.isdir(path):
        raise InputError(f"{option} {escape(path)}: is a folder: name a file")
    around = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(around):
        raise InputError(f"{option} {escape(path)}: {escape(around)} is not a folder: make it first")


def write_whole(path: str, text: str) -> None:
    """Write a file beside ``path``, then rename it. Raises OSError that names ``path``; what was there is then as before."""
    aside = f"{path}.{os.getpid()}"
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError):
            error.filename = path
        raise


def copy_whole(temporary: str, source: str, target: str) -> None:
    """Copy the file ``source`` to ``target`` by way of the folder ``temporary``. Raises OSError and InputError as a Reader."""
    with files.Reader(source) as reader, files.writing(temporary, target) as writer:
        size = reader.size()
        for at in range(0, size, _COPIED_BYTES):
            writer.append(reader.read(at, min(_COPIED_BYTES, size - at)))
        writer.finish()
