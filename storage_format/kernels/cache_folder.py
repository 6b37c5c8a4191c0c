"""Where compiled record loops are kept, the stamp of what they are made of, and those that come with the package."""

import contextlib
import functools
import hashlib
import os
import pkgutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ----------------------------------------------------------------------------------------------------------------- cache_folder


if TYPE_CHECKING:
    from importlib.abc import FileLoader, PathEntryFinder, ResourceLoader

# ------------------------------------------------------------------------------------------------------------------------ stamp
# What compiled code is made of: the modules of the whole package, however deep they lie, in a folder or in a zip.
#
# A loop has the code and the constants of other modules in it. A change anywhere in the package makes all compiled code anew.

_DIGEST_SIZE: Final = 16


def _modules(paths: Iterable[str], prefix: str) -> Iterator[ModuleSpec]:
    """Yield the modules below a package, in the order of their names. None is imported: an import may fail, and be left out."""
    for module in sorted(pkgutil.iter_modules(paths, prefix), key=lambda module_info: module_info.name):
        spec = cast("PathEntryFinder | FileFinder", module.module_finder).find_spec(module.name)
        # Raises where the module has gone in the meantime.
        assert spec is not None
        yield spec
        yield from _modules(spec.submodule_search_locations or (), f"{module.name}.")


def _specs() -> Iterator[ModuleSpec]:
    from rocketmq_reindex import storage_format

    return _modules(storage_format.__path__, f"{storage_format.__name__}.")


def names() -> list[str]:
    """Return the modules that the stamp covers."""
    return [spec.name for spec in _specs()]


def _source(spec: ModuleSpec) -> bytes:
    """Return a module's source, or its bytecode where that comes alone. A zip with both is imported by its bytecode."""
    loader, path = cast("FileLoader", spec.loader), str(spec.origin)
    with contextlib.suppress(OSError):
        return loader.get_data(path.removesuffix("c"))
    return loader.get_data(path)


def _now() -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for spec in _specs():
        source = _source(spec)
        digest.update(b"%s %d\n%s" % (spec.name.encode(), len(source), source))
    return digest.hexdigest()


@functools.cache
def at_start() -> str:
    """Return a digest of the names and the sources of all modules when this process first asked; 32 hexadecimal digits."""
    return _now()


def still_holds() -> bool:
    """Return whether this process runs the sources that ``at_start`` stands for: none was edited, and Python compiled no older
    one."""
    try:
        return _is_what_runs() and _now() == at_start()
    except Exception:  # noqa: BLE001  an installer or an editor is at work: a file is gone, or half of a module is there
        return False


@functools.cache
def _is_what_runs() -> bool:
    """Return whether Python's own compiled files are those of the sources.

    Python takes an old one for an edited source of the same size and second, and the compiled loops are then made of it.
    """
    for spec in _specs():
        loader = spec.loader
        if isinstance(loader, SourceFileLoader):
            path = str(spec.origin)
            if loader.get_code(spec.name) != loader.source_to_code(loader.get_data(path), path):
                return False
    return True


# ----------------------------------------------------------------------------------------------------------------- cache folder
# Where compiled record loops are kept: numba unpickles what lies there, so nobody else may be able to write it.
#
# This module and ``compiler`` are the only ones here that look at files (``pyproject.toml`` says so): numba asks for them
# when ``storage_format.kernels.jit`` is imported, in every process, before anything else could hand the folder in.

VARIABLE: Final = "NUMBA_CACHE_DIR"
SUFFIX: Final = ".nbc"
"""of a file of compiled code"""
_SHARED: Final = stat.S_IWGRP | stat.S_IWOTH
_PREFIX: Final = "rmq-reindex-"
_UNUSED: Final = 30 * 86400
"""seconds after which a folder of other sources is removed"""


def find() -> str:
    """Return the folder to keep them in, made if need be, without links in its path; "" where there is none.

    It lies in the folder that VARIABLE names, else in ``__pycache__`` beside this file, else in the user's own cache. Its name
    is the stamp of the sources: code of other sources, or of another checkout, is in another folder. Raises InputError where
    others may write to the named one.
    """
    if named := os.environ.get(VARIABLE, ""):
        folder, trouble = _own(os.path.realpath(named))
        if trouble:
            raise InputError(f"{VARIABLE}: {trouble}: compiled code is run as it is found: name a folder of your own, mode 700")
        return folder
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__pycache__")
    # Python keeps its own compiled code there: who may write there may change this package.
    with contextlib.suppress(OSError):
        os.makedirs(beside, exist_ok=True)
        folder = _inside(beside)
        _make(folder)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    cache = users_cache()
    return _own(os.path.join(cache, "numba"))[0] if cache else ""


def users_cache() -> str:
    """Return the folder of the user's own caches, without links in its path; "" for a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # For a user without a home it is relative, and so in the working folder.
    return os.path.realpath(cache) if os.path.isabs(cache) else ""


def holds(loop: str) -> bool:
    """Return whether compiled code of a function is kept whose ``module.name`` begins with ``loop``. Raises InputError as
    ``find``."""
    folder = find()
    with contextlib.suppress(OSError):
        return bool(folder) and any(name.startswith(loop) and name.endswith(SUFFIX) for name in os.listdir(folder))
    return False


def _own(around: str) -> tuple[str, str]:
    """Return a folder in ``around`` that is the user's alone, "" where none can be made, and what is wrong with it."""
    folder = _inside(around)
    with contextlib.suppress(OSError):
        _make(folder)
    try:
        trouble = trouble_of(folder)
    except OSError:
        return "", ""
    if trouble:
        return "", trouble
    return folder if os.access(folder, os.W_OK | os.X_OK) else "", ""


def _inside(around: str) -> str:
    return os.path.join(around, _PREFIX + at_start())


def _make(folder: str) -> None:
    """Make the folder of compiled code, or note that it is used; beside a new one, remove what nobody uses any more."""
    if os.path.isdir(folder):
        os.utime(folder)
    elif make_own(folder):
        for path in unused_beside(folder, _PREFIX):
            _remove(path)


def make_own(folder: str) -> bool:
    """Make a folder and those around it for the user alone. Return False where another process was first. Raises OSError."""
    if not os.path.isdir(os.path.dirname(folder)):
        make_own(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return False
    return True


def unused_beside(folder: str, prefix: str) -> list[str]:
    """Return the folders beside a new one whose names begin with ``prefix`` and that nobody has used for 30 days.

    They are the user's. Their time is that of their last use. Raises OSError.
    """
    made, around = os.stat(folder), os.path.dirname(folder)
    with os.scandir(around) as beside:
        return [entry.path for entry in beside if entry.name.startswith(prefix) and _is_unused(entry, made)]


def _is_unused(entry: os.DirEntry[str], made: os.stat_result) -> bool:
    """Return whether a folder is the user's and was last used long before another was made."""
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == made.st_uid and status.st_mtime < made.st_mtime - _UNUSED


def _remove(folder: str) -> None:
    """Remove a folder of compiled code, in which there are files only."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as files:
            for file in files:
                os.unlink(file.path)
        os.rmdir(folder)


def trouble_of(folder: str) -> str:
    """Return why others may put files into a folder, or another folder into its place; "" where only the user and root may.

    In a sticky folder, as /tmp is, nobody else can rename it. Raises OSError.
    """
    looked = os.lstat(folder)
    if not stat.S_ISDIR(looked.st_mode):
        return f"{escape(folder)} is no folder"
    if looked.st_uid != os.getuid():
        return f"{escape(folder)} belongs to somebody else"
    if looked.st_mode & _SHARED:
        return f"others may write to {escape(folder)}"
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        looked = os.lstat(folder)
        if looked.st_uid not in (0, os.getuid()):
            return f"{escape(folder)} belongs to somebody else"
        if looked.st_mode & _SHARED and not looked.st_mode & stat.S_ISVTX:
            return f"others may write to {escape(folder)}"
    return ""


# ---------------------------------------------------------------------------------------------------------------------- carried
# Compiled record loops that come with the package, for common processors: the zip of ``dist/`` has them, a wheel has none.
#
# They lie beside the sources that they are made of, in a folder with the stamp of these in its name. Whoever can write there
# can change the package itself, so their owner is not looked at. A loop is known by the name that its file has in the folder
# of compiled code of a process that compiles for such a processor (``jit``).


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


# The features of the levels of the x86-64 psABI, and carry-less multiplication, which no level has (``compiler``).
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


def carried_place(level: Level) -> str:
    """Return the folder of a level's loops, from the folder of this module on."""
    return os.path.join(FOLDER, at_start(), level.name)


def fitting(features: Mapping[str, bool]) -> Level | None:
    """Return the best level all of whose features a processor has; None where it has those of none."""
    return next((level for level in LEVELS if all(features.get(name) for name in level.needed.split())), None)


@functools.cache
def carried_level() -> Level | None:
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


def is_carried(loop: str) -> bool:
    """Return whether this process need not compile the function whose ``module.name`` begins with ``loop``."""
    found = carried_level()
    return found is not None and any(name.startswith(loop) for name in _read(found, LIST).decode().splitlines())


def carried_content(name: str) -> bytes:
    """Return the file of a loop, "" where there is none of that name that fits this processor."""
    found = carried_level()
    return b"" if found is None else _read(found, name + SUFFIX)


def _read(level: Level, name: str) -> bytes:
    loader = cast("ResourceLoader", __spec__.loader)  # what has imported this module: for a zip its importer
    try:
        return loader.get_data(os.path.join(os.path.dirname(__file__), carried_place(level), name))
    except OSError:
        return b""
