"""One way to compile a record loop: numba in nopython mode, cached on disk, without the GIL.

The wrapped function keeps its Python twin (``NUMBA_DISABLE_JIT=1`` runs it), which the tests compare with the compiled one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile ``function``; integer arguments are int64, arrays are C-contiguous."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
