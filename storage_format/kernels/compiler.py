"""numba, imported without the settings that the working folder may hold. All other modules take it from here."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def _without_settings_of_working_folder() -> Iterator[None]:
    """numba reads ``.numba_config.yaml`` of the working folder, where yaml is, when it is imported and at each compilation.

    Among others they name a folder with code to be run, and anybody may have written into the working folder.
    """
    if "numba" in sys.modules:
        yield
        return
    missing = object()
    yaml: Any = sys.modules.get("yaml", missing)
    sys.modules["yaml"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A Numba config file is found")
            yield
            from numba import config

            config._config_fname = ""
    finally:
        del sys.modules["yaml"]
        if yaml is not missing:
            sys.modules["yaml"] = yaml


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
