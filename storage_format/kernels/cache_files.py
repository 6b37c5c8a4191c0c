"""Files of compiled code in their folder: each is whole or not there, and one process makes it while the others wait."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import zlib
from typing import Final

_SUFFIX: Final = ".nbc"
_DIGEST_SIZE: Final = 32
_LOCK: Final = "rmq-reindex.lock"
_POLLS, _POLL = 1200, 0.05
"""how long one waits for what another compiles: a minute, then it compiles by itself"""
_locks: dict[str, int] = {}
"""the open file of each folder. It stays open: to close it would give up all of a process's locks."""
_held: dict[str, int] = {}


def load(folder: str, name: str) -> bytes | None:
    """What was saved by this name; None where there is none, or where it is not whole."""
    try:
        with open(os.path.join(folder, name + _SUFFIX), "rb") as file:
            digest, data = file.read(_DIGEST_SIZE), file.read()
    except OSError:
        return None
    return data if digest == _digest(data) else None


def save(folder: str, name: str, data: bytes) -> None:
    """Keep ``data`` by this name. A full disk, or a folder that is gone: it is done without."""
    path = os.path.join(folder, name + _SUFFIX)
    aside = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(aside, "xb") as file:
            file.write(_digest(data) + data)
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).digest()


def wait_for_others(folder: str, name: str) -> bool:
    """Wait until nobody else compiles ``name``, and keep others from it; whether somebody did.

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
