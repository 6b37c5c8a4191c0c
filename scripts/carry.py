"""Compile the record loops for the processors of ``storage_format.kernels.cache_folder``, whatever processor this machine has.

No loop of another processor is run here. What a store needs is found by working through one with this processor's loops, and
then each of them is compiled by its signature, in a process for each level.
"""

from __future__ import annotations

import importlib
import os
import pickle
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocketmq_reindex.storage_format.kernels import cache_folder

ROOT = Path(__file__).resolve().parent.parent
NUMBA = "NUMBA_"
Loops = list[tuple[str, str, Any]]
"""module, name and signature of each"""


def _asked() -> tuple[Loops, bool]:
    """Each loop that Python code calls, and whether one had to be compiled. Loops that only loops call are part of those.

    In a process that compiles, a loop may be there as part of another one before Python code calls it: that call is not seen.
    """
    from numba.core import dispatcher

    from scripts import kernels

    found: dict[tuple[str, str, str], tuple[str, str, Any]] = {}
    kind: Any = dispatcher.Dispatcher
    compile_for, misses = kind._compile_for_args, list[Any]()

    # Called where a process calls a function with such arguments for the first time, be it compiled or not.
    def noted(self: Any, *values: Any, **named: Any) -> Any:
        module, name, signature = self.py_func.__module__, self.py_func.__qualname__, tuple(map(self.typeof_pyval, values))
        found[module, name, str(signature)] = module, name, signature
        try:
            return compile_for(self, *values, **named)
        finally:
            misses.extend(self.stats.cache_misses)

    kind._compile_for_args = noted
    kernels.main()
    return [called for _, called in sorted(found.items(), key=lambda item: item[0])], bool(misses)


def _compiled(asked: Loops) -> list[str]:
    """Compile the loops in this process, as its environment says, and return their files."""
    paths = []
    for module, name, signature in asked:
        loop = getattr(importlib.import_module(module), name)
        loop.compile(signature)
        file = loop._cache._file(signature, loop.targetctx.codegen())
        paths.append(os.path.join(cache_folder.find(), file + cache_folder.SUFFIX))
    return paths


def _run(step: str, given: bytes, **settings: str) -> Any:
    """Run a step of this script in a process of its own, with these settings of numba and no others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NUMBA)}
    # The order of a set would be that of its hashes.
    environment |= settings | {"PYTHONHASHSEED": "0"}
    words = [sys.executable, "-m", "scripts.carry", step]
    done = subprocess.run(words, input=given, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return pickle.loads(done.stdout)


def carry(tree: Path) -> None:
    """Put the compiled loops of all levels beside the sources in ``tree``, which are those of this checkout.

    They are kept where the checkout keeps its own: what has not changed is not compiled again.
    """
    # What is compiled elsewhere could not be tried on this machine, and the packages of ``dist/`` are for its kind alone.
    if platform.machine() != "x86_64":
        return
    asked, anew = _run("asked", b"")
    if anew:
        asked, _ = _run("asked", b"")
    given = pickle.dumps(asked)

    def put(level: cache_folder.Level) -> None:
        found = _run("compiled", given, NUMBA_CPU_NAME=level.name, NUMBA_CPU_FEATURES=level.features)
        paths = [Path(path) for path in found]
        target = tree / "rocketmq_reindex" / "storage_format" / "kernels" / cache_folder.carried_place(level)
        target.mkdir(parents=True)
        for path in paths:
            shutil.copyfile(path, target / path.name)
        (target / cache_folder.LIST).write_text("".join(f"{path.stem}\n" for path in paths), encoding="ascii")

    # Each level keeps one core busy for half a minute.
    with ThreadPoolExecutor() as pool:
        list(pool.map(put, cache_folder.LEVELS))


def main(step: str) -> int:
    """Do one step, and give what it found to the process that asked for it."""
    found = _asked() if step == "asked" else _compiled(pickle.load(sys.stdin.buffer))
    pickle.dump(found, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
