"""What compiled code is made of: the modules of the whole package, however deep they lie, in a folder or in a zip.

A loop has the code and the constants of other modules in it. A change anywhere in the package makes all compiled code anew.
"""

from __future__ import annotations

import functools
import hashlib
import pkgutil
from collections.abc import Iterable, Iterator
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from importlib.abc import FileLoader, PathEntryFinder

_DIGEST_SIZE: Final = 16


def _modules(paths: Iterable[str], prefix: str) -> Iterator[ModuleSpec]:
    """The modules below a package, in the order of their names. None is imported: an import may fail, and be left out."""
    for module in sorted(pkgutil.iter_modules(paths, prefix), key=lambda found: found.name):
        spec = cast("PathEntryFinder | FileFinder", module.module_finder).find_spec(module.name)
        # Raises where the module has gone in the meantime.
        assert spec is not None
        yield spec
        yield from _modules(spec.submodule_search_locations or (), f"{module.name}.")


def _specs() -> Iterator[ModuleSpec]:
    from rocketmq_reindex import storage_format

    return _modules(storage_format.__path__, f"{storage_format.__name__}.")


def names() -> list[str]:
    """The modules that the stamp covers."""
    return [spec.name for spec in _specs()]


def _now() -> str:
    found = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for spec in _specs():
        source = cast("FileLoader", spec.loader).get_data(str(spec.origin))
        found.update(b"%s %d\n%s" % (spec.name.encode(), len(source), source))
    return found.hexdigest()


@functools.cache
def at_start() -> str:
    """A digest of the names and the sources of all modules when this process first asked; 32 hexadecimal digits."""
    return _now()


def still_holds() -> bool:
    """Whether this process runs the sources that ``at_start`` stands for: none was edited, and Python compiled no older one."""
    try:
        return _is_what_runs() and _now() == at_start()
    except Exception:  # noqa: BLE001  an installer or an editor is at work: a file is gone, or half of a module is there
        return False


@functools.cache
def _is_what_runs() -> bool:
    """Whether Python's own compiled files are those of the sources.

    Python takes an old one for an edited source of the same size and second, and the compiled loops are then made of it.
    """
    for spec in _specs():
        loader = spec.loader
        if isinstance(loader, SourceFileLoader):
            path = str(spec.origin)
            if loader.get_code(spec.name) != loader.source_to_code(loader.get_data(path), path):
                return False
    return True
