"""The lock that a broker holds on its store while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from jobs.store.ownership import give
from storage_format.errors import InputError
from storage_format.names import escape
from udfs import files

LOCK = "lock"
"""``StorePathConfigHelper.getLockFile``"""


@contextlib.contextmanager
def store_locked(store: str, make: bool = True) -> Iterator[None]:
    """Hold the store as a broker does (``DefaultMessageStore.start``: one byte of STORE/lock): none can start meanwhile.

    Raises InputError when one runs. Without ``make`` a store that no broker has ever opened is not marked.
    """
    path = os.path.join(store, LOCK)
    # Not removed again: a broker may have it open by then, and another would lock a new one.
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    is_new = not os.path.lexists(path)
    if is_new and not make:
        yield
        return
    handle = os.open(path, flags | (os.O_CREAT if is_new else 0), 0o644)
    try:
        if is_new:
            # A broker that may not write it does not start.
            give(path, store)
        with files.naming(path):
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(f"{escape(path)}: is no regular file, as a broker's lock would be")
            try:
                # Java's FileChannel.tryLock is fcntl's lock, not flock's.
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            except (BlockingIOError, PermissionError):
                raise InputError(f"{escape(store)}: a broker runs on this store (it holds {LOCK}): stop it first") from None
        yield
    finally:
        os.close(handle)
