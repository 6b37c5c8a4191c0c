"""One way to compile a record loop: numba in nopython mode, cached on disk, without the GIL.

numba looks only at a function's own file to see whether its cached code is stale, not at the functions and constants it
takes from others: code of an older version would go on running. What is kept here is named by a stamp of the whole package.
The wrapped function keeps its Python twin (``NUMBA_DISABLE_JIT=1`` runs it), which the tests compare with the compiled one.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from rocketmq_reindex.storage_format.kernels import cache_folder, compiler
from rocketmq_reindex.storage_format.kernels.compiler import CompileResult, FunctionCache, dumps, llvmlite, numba

F = TypeVar("F", bound=Callable[..., object])

FOLDER: Final = cache_folder.find()
_COMPILER: Final = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, sys.flags.optimize)


class _Cache(FunctionCache):  # type: ignore[misc]  # numba ships no types
    """One file for each signature of a function, named by all that its code depends on.

    numba's own cache keeps an index of numbered files. A process that is killed between two writes, or two processes that
    write at the same time, leave an index of new code that names a file of old code. And the environment
    (``NUMBA_CACHE_LOCATOR_CLASSES``) decides there where files lie and when they are stale.

    One process compiles a function while the others wait: driver, daemon and workers need the same at the same time. Where
    there is no folder to keep it in, each compiles what does not come with the package.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._name, self._py_func, self._cache_path = repr(function), function, FOLDER
        self._readable = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}".replace("<", "").replace(">", "")
        self.enable()

    def _file(self, sig: Any, codegen: Any, level: cache_folder.Level | None = None) -> str:
        """Return the name of a signature's file, without its suffix: of this processor's code, or of a level's."""
        function = self._py_func
        # The folder's name stands for the sources of the package, ``_index_key`` for signature, processor and bytecode.
        _, processor, bytecode = self._index_key(sig, codegen)
        # The constants that the processor decides.
        constants = compiler.CAN_FOLD, compiler.FOLDS_WIDE
        if level is not None:
            processor, constants = (processor[0], level.name, level.features), compiler.folding(level.features)
        parts = (
            function.__module__, function.__qualname__, function.__code__.co_firstlineno, *_COMPILER, *constants,
            sig, processor, bytecode,
        )  # fmt: skip
        return f"{self._readable}-{hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()}"

    def _kept(self, name: str, target_context: Any) -> Any:
        return _rebuilt(compiler.load(FOLDER, name), target_context) if FOLDER else None

    def _carried(self, sig: Any, target_context: Any) -> Any:
        level = cache_folder.carried_level()
        if level is None:
            return None
        name = self._file(sig, target_context.codegen(), level)
        return _rebuilt(compiler.whole(cache_folder.carried_content(name)), target_context)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file(sig, target_context.codegen())
        overload = self._kept(name, target_context) or self._carried(sig, target_context)
        if overload is None and FOLDER:
            compiler.lock(FOLDER, name)
            overload = self._kept(name, target_context)
            if overload is not None:
                compiler.unlock(FOLDER, name)
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        if not FOLDER:
            return
        name = self._file(sig, data.codegen)
        # Of sources that were edited in the meantime nobody knows which are in the code.
        if not data.lifted and not data.library.has_dynamic_globals and cache_folder.still_holds():
            # Nobody asks for the types as text: a third of the bytes, with addresses and paths of this process.
            compiler.save(FOLDER, name, dumps(data._replace(type_annotation="")._reduce()))
        compiler.unlock(FOLDER, name)

    def flush(self) -> None:
        """Nothing: code of other sources has other names."""


def _rebuilt(data: bytes | None, target_context: Any) -> Any:
    return None if data is None else CompileResult._rebuild(target_context, *pickle.loads(data))


def _compile(function: F, **options: bool) -> F:
    # error_model: no test for a zero divisor at each division.
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    # A Python twin has no cache.
    if hasattr(compiled, "enable_caching"):
        compiled._cache = _Cache(function)
    return cast(F, compiled)


def jit(function: F) -> F:
    """Return ``function`` compiled: integer arguments are int64, arrays are C-contiguous. It may make no array."""
    # No reference counts: every call from loop to helper would else count each array it passes, atomically.
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """Return compiled what a record loop calls for each record: its code becomes part of the caller's."""
    return _compile(function, _nrt=False, forceinline=True)


def allocating(function: F) -> F:
    """Return a function that makes arrays compiled: its calls count references."""
    return _compile(function)
