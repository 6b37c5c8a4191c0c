"""Open local files, and nothing that only looks like one."""

from __future__ import annotations

import os
import stat
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.systems import naming

MADV_POPULATE_READ: Final = 22
"""Linux 5.14 and later; Python has no name for it."""


def open_regular(path: str) -> int:
    """A handle to read a regular file.

    Raises InputError for anything else: opening a FIFO may wait for ever, and a device may never end.
    """
    # Checked twice: to open a device may have effects, and the file may have been replaced since the first check.
    regular = stat.S_ISREG(os.stat(path).st_mode)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC) if regular else -1
    try:
        with naming(path):
            if regular and stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
        raise InputError(f"{escape(path)}: is no regular file: give a file")
    except BaseException:
        if handle >= 0:
            os.close(handle)
        raise
