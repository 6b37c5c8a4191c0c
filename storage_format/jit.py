"""One way to compile a record loop: numba in nopython mode, cached on disk, without the GIL.

numba looks only at a function's own file to see whether its cached code is stale, not at the functions and constants it
takes from others: code of an older version would go on running. The cache's key therefore holds a stamp of the whole package.
The wrapped function keeps its Python twin (``NUMBA_DISABLE_JIT=1`` runs it), which the tests compare with the compiled one.
"""

from __future__ import annotations

import contextlib
import pkgutil
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.misc.appdirs import AppDirs

F = TypeVar("F", bound=Callable[..., object])


def _stamp() -> int:
    import storage_format

    crc = 0
    for module in sorted(pkgutil.iter_modules(storage_format.__path__), key=lambda m: m.name):
        crc = zlib.crc32(pkgutil.get_data("storage_format", f"{module.name}.py") or b"", crc)
    return crc


STAMP: Final = _stamp()


class _StampedCache(FunctionCache):  # type: ignore[misc]  # numba ships no types
    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), STAMP)


class _ZipLocator(_CacheLocator):  # type: ignore[misc]  # numba ships no types
    """A folder for the code of modules in a zip, which lies at another path on every executor of every application.

    numba's own locator goes by that path, and so finds nothing again; nor does it ask whether its folder can be written to.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        folder = config.CACHE_DIR or AppDirs(appname="numba", appauthor=False).user_cache_dir
        return f"{folder}/rmq-reindex-{STAMP:08x}"

    def get_source_stamp(self) -> int:
        return STAMP

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., object], _path: str) -> _ZipLocator | None:
        found = cls(function)
        with contextlib.suppress(OSError):
            found.ensure_cache_path()
            return found
        return None


class _ZipImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: Final = [_ZipLocator]


class _ZipCache(_StampedCache):
    _impl_class = _ZipImpl


def _compile(function: F, **options: bool) -> F:
    # error_model: no test for a zero divisor at each division.
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if hasattr(compiled, "enable_caching"):
        # Where there is no folder to cache in (a package that may not be written to), each process compiles anew.
        with contextlib.suppress(RuntimeError):
            compiled._cache = (_ZipCache if ".zip/" in function.__code__.co_filename else _StampedCache)(function)
    return cast(F, compiled)


def jit(function: F) -> F:
    """Compile ``function``; integer arguments are int64, arrays are C-contiguous. It may make no array."""
    # No reference counts: every call from loop to helper would else count each array it passes, atomically.
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """The same for what a record loop calls for each record: its code becomes part of the caller's."""
    return _compile(function, _nrt=False, forceinline=True)


def allocating(function: F) -> F:
    """The same for a function that makes arrays: its calls count references."""
    return _compile(function)
