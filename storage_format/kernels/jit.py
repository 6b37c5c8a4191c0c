"""Compile a record loop: numba in nopython mode, cached on disk, without the GIL.

To see whether cached code is stale numba looks only at a function's own file, not at those of the functions and constants that
it uses. Code of an older version would go on running. What is cached therefore has a stamp of the whole package. The compiled
function keeps its Python twin (``NUMBA_DISABLE_JIT=1`` runs it), which the tests compare with the compiled one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from rocketmq_reindex.storage_format.kernels import cache_folder
from rocketmq_reindex.storage_format.kernels.compiler import CompileResultCacheImpl, FunctionCache, _CacheLocator, numba

F = TypeVar("F", bound=Callable[..., object])


FOLDER: Final = cache_folder.find()


class _Locator(_CacheLocator):  # type: ignore[misc]  # numba ships no types
    """Puts all compiled code into one folder.

    numba's own locators go by a module's path, which for a module in a zip differs on every executor of every application. And
    none of them checks who owns the folder.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._name = f"{function.__module__}-{function.__code__.co_firstlineno}"

    def get_cache_path(self) -> str:
        return FOLDER

    def get_source_stamp(self) -> int:
        return cache_folder.STAMP

    def get_disambiguator(self) -> str:
        # numba names a file by the last part of a module's name, which modules of two packages may share.
        return self._name

    @classmethod
    def from_function(cls, function: Callable[..., object], _path: str) -> _Locator | None:
        return cls(function) if FOLDER else None


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: Final = [_Locator]


class _Cache(FunctionCache):  # type: ignore[misc]
    """Lets one process compile while the others wait: driver, daemon and workers would all compile the same at the same
    time."""

    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None and cache_folder.wait_for_others(FOLDER, self._impl.filename_base):
            found = super().load_overload(sig, target_context)
        if found is not None:
            cache_folder.let_others_go_on(self._impl.filename_base)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # Where the disk is full, or the folder is gone, it works without a cache.
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)
        cache_folder.let_others_go_on(self._impl.filename_base)


def _compile(function: F, **options: bool) -> F:
    # error_model: no test for a zero divisor at each division.
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if hasattr(compiled, "enable_caching"):
        # Where there is no folder to cache in, each process compiles anew.
        with contextlib.suppress(RuntimeError):
            compiled._cache = _Cache(function)
    return cast(F, compiled)


def jit(function: F) -> F:
    """Compile ``function``, which may make no array. Integer arguments are int64, arrays are C-contiguous."""
    # Without reference counts: else each call from a loop to a helper would count each array it passes, atomically.
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """Compile as ``jit`` does what a loop calls for each record: its code becomes part of the caller's."""
    return _compile(function, _nrt=False, forceinline=True)


def allocating(function: F) -> F:
    """Compile as ``jit`` does a function that makes arrays: its calls count references."""
    return _compile(function)
