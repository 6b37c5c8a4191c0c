"""A copy of the package with two small loops more, and what they give in a process of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import rocketmq_reindex

LOOP = """
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.{package}.deep.step import STEP


@jit
def f(n):
    return n + STEP
"""
CALL = """
import sys
sys.path.insert(0, {folder!r})
{before}
from rocketmq_reindex.storage_format.kernels.jit import FOLDER
from rocketmq_reindex.storage_format.one import loop as one
from rocketmq_reindex.storage_format.two import loop as two
{then}
print(one.f(0), two.f(0), *(sum(f.stats.cache_hits.values()) for f in (one.f, two.f)))
"""
TWIN = "rocketmq_reindex/storage_format"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def step(folder: Path, package: str, value: int) -> Path:
    path = folder / TWIN / package / "deep" / "step.py"
    put(path, f"STEP = {value}\n")
    return path


NEEDED = ("__init__.py", "errors.py", "showing.py", "kernels")
"""of ``storage_format``, to compile a loop; each process reads and compiles all that is there"""


def copied(folder: Path) -> Path:
    """``folder`` with the package in it, and in that two modules of one name: the same function, line and bytecode."""
    parts = Path(rocketmq_reindex.__path__[0]) / "storage_format"
    put(folder / "rocketmq_reindex" / "__init__.py", "")
    for name in NEEDED:
        if (parts / name).is_dir():
            shutil.copytree(parts / name, folder / TWIN / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            put(folder / TWIN / name, (parts / name).read_text(encoding="utf-8"))
    for number, name in enumerate(("one", "two"), start=1):
        put(folder / TWIN / name / "__init__.py", "")
        put(folder / TWIN / name / "deep" / "__init__.py", "")
        step(folder, name, number)
        put(folder / TWIN / name / "loop.py", LOOP.format(package=name))
    return folder


def called(folder: Path, before: str = "", then: str = "", *options: str, **environment: str) -> list[int]:
    """What both loops give, and whether they were compiled before."""
    words = [sys.executable, "-I", "-B", *options, "-c", CALL.format(folder=str(folder), before=before, then=then)]
    done = subprocess.run(
        words, env=os.environ | {"NUMBA_CACHE_DIR": ""} | environment, capture_output=True, text=True, timeout=900, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]
