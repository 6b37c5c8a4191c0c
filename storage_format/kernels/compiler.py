"""numba without the settings of the working folder, and whole files of compiled code."""

import contextlib
import fcntl
import functools
import hashlib
import os
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex.storage_format.kernels.cache_folder import SUFFIX

# --------------------------------------------------------------------------------------------------------------------- compiler
# numba, imported without the settings that the working folder may hold. All other modules take it from here.


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Have imports of a package fail."""
    missing = object()
    imported: Any = sys.modules.get(name, missing)
    sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    try:
        yield
    finally:
        del sys.modules[name]
        if imported is not missing:
            sys.modules[name] = imported


@contextlib.contextmanager
def _without_settings_of_working_folder() -> Iterator[None]:
    """numba reads ``.numba_config.yaml`` of the working folder, where yaml is, when it is imported and at each compilation.

    Among others they name a folder with code to be run, and anybody may have written into the working folder. Nor does numba
    import coverage.py, where that is installed and does not run: it takes a sixth of the time.
    """
    if "numba" in sys.modules:
        yield
        return
    coverage = contextlib.nullcontext() if "coverage" in sys.modules else _without("coverage")
    with _without("yaml"), coverage, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A Numba config file is found")
        yield
        from numba import config

        config._config_fname = ""


with _without_settings_of_working_folder():
    import llvmlite
    import numba
    from numba import types
    from numba.core import cgutils
    from numba.core.caching import FunctionCache
    from numba.core.codegen import get_host_cpu_features
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps
    from numba.extending import intrinsic

__all__ = [
    "CompileResult",
    "FunctionCache",
    "cgutils",
    "dumps",
    "get_host_cpu_features",
    "intrinsic",
    "llvmlite",
    "numba",
    "types",
]


# ------------------------------------------------------------------------------------------------------------------ cache files
# Files of compiled code in their folder: each is whole or not there, and one process makes it while the others wait.

_DIGEST_SIZE: Final = 32
_LOCK: Final = "rmq-reindex.lock"
_POLLS, _POLL = 1200, 0.05
"""A process waits a minute for what another one compiles; then it compiles by itself."""
_held: set[str] = set()


def load(folder: str, name: str) -> bytes | None:
    """Return what ``save`` kept by this name; None where there is no file, or one that is not whole."""
    try:
        with open(os.path.join(folder, name + SUFFIX), "rb") as file:
            return whole(file.read())
    except OSError:
        return None


def whole(content: bytes) -> bytes | None:
    """Return the data that ``save`` put into a file with this content; None where it is cut or altered."""
    digest, data = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return data if digest == _digest(data) else None


def save(folder: str, name: str, data: bytes) -> None:
    """Keep ``data`` by this name, if that works: the disk may be full, or the folder gone. Raises nothing."""
    path = os.path.join(folder, name + SUFFIX)
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


@functools.cache
def _lock_file(folder: str) -> int:
    """Return the open file of locks. It is never closed: to close it would give up all locks of the process."""
    return os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def lock(folder: str, name: str) -> None:
    """Wait until no other process compiles ``name``, and make the others wait; where nothing can be locked, nobody waits.

    A lock is a byte of one file: it ends with its process, and a process that is forked does not have it.
    """
    with contextlib.suppress(OSError):
        for _ in range(_POLLS):
            if _taken(_lock_file(folder), name):
                _held.add(name)
                return
            threading.Event().wait(_POLL)


def _taken(file: int, name: str) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(folder: str, name: str) -> None:
    """Let the others go on, if this process has the lock on ``name``."""
    if name in _held:
        _held.remove(name)
        with contextlib.suppress(OSError):
            fcntl.lockf(_lock_file(folder), fcntl.LOCK_UN, 1, zlib.crc32(name.encode()))
