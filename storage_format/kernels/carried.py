"""Compiled record loops that come with the package, for common processors: the zip of ``dist/`` has them, a wheel has none.

They lie beside the sources that they are made of, in a folder with the stamp of these in its name. Whoever can write there can
change the package itself, so their owner is not looked at. A loop is known by the name that its file has in the folder of
compiled code of a process that compiles for such a processor (``jit``).
"""

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rocketmq_reindex.storage_format.kernels import cache_folder

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


class Level(NamedTuple):
    """Processors for which the same code is compiled."""

    name: str
    """LLVM's, for NUMBA_CPU_NAME"""
    needed: str
    """the features that a processor must have, those that the loops ask for among them"""

    @property
    def features(self) -> str:
        """The features as LLVM and NUMBA_CPU_FEATURES have them."""
        return ",".join(f"+{feature}" for feature in self.needed.split())


# The features of the levels of the x86-64 psABI, and carry-less multiplication, which no level has (``clmul``).
_V3: Final = (
    "64bit cmov cx8 fxsr mmx sse sse2 "
    "cx16 crc32 popcnt sahf sse3 sse4.1 sse4.2 ssse3 "
    "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave "
    "pclmul"
)
LEVELS: Final = (
    Level("x86-64-v4", f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl vpclmulqdq"),
    Level("x86-64-v3", _V3),
)
"""the best one first"""
FOLDER: Final = "carried"
LIST: Final = "names"
"""the file of a level that names its loops, one a line"""
_ASKED: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")


def place(level: Level) -> str:
    """Return the folder of a level's loops, from the folder of this module on."""
    return os.path.join(FOLDER, cache_folder.at_start(), level.name)


def fitting(features: Mapping[str, bool]) -> Level | None:
    """Return the best level all of whose features a processor has; None where it has those of none."""
    return next((level for level in LEVELS if all(features.get(name) for name in level.needed.split())), None)


@functools.cache
def level() -> Level | None:
    """Return the level whose loops this process takes; None where none come with the package, or none fits.

    Who names a processor to numba wants the loops to be compiled for it.
    """
    if not any(_read(level, LIST) for level in LEVELS) or any(name in os.environ for name in _ASKED):
        return None
    from llvmlite import binding

    try:
        found = fitting(binding.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell
        return None
    return found if found and _read(found, LIST) else None


def holds(loop: str) -> bool:
    """Return whether this process need not compile the function whose ``module.name`` begins with ``loop``."""
    found = level()
    return found is not None and any(name.startswith(loop) for name in _read(found, LIST).decode().splitlines())


def content(name: str) -> bytes:
    """Return the file of a loop, "" where there is none of that name that fits this processor."""
    found = level()
    return b"" if found is None else _read(found, name + cache_folder.SUFFIX)


def _read(level: Level, name: str) -> bytes:
    loader = cast("ResourceLoader", __spec__.loader)  # what has imported this module: for a zip its importer
    try:
        return loader.get_data(os.path.join(os.path.dirname(__file__), place(level), name))
    except OSError:
        return b""
