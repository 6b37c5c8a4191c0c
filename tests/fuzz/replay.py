"""Run inputs through their target once: python -m tests.fuzz.replay TARGET FILE_OR_FOLDER...

With compiled loops, or with their Python twins under ``NUMBA_DISABLE_JIT=1``. Prints the first input that fails.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def load(target: str) -> ModuleType:
    return importlib.import_module(f"tests.fuzz.{target}")


def files(paths: Iterable[Path]) -> list[Path]:
    return [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]


def main(target: str, paths: list[str]) -> int:
    # numba never warns of an overflow that the plain loops meet: there it is a fault.
    warnings.simplefilter("error", RuntimeWarning)
    check, count = load(target).check, 0
    for path in files(map(Path, paths)):
        try:
            check(path.read_bytes())
        except BaseException:
            print(f"{target}: {path} fails", file=sys.stderr, flush=True)
            raise
        count += 1
    print(f"{target}: {count} inputs pass")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
