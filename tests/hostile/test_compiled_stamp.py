"""Compiled code is never stale: a change of any module of the package, however deep it lies, makes it anew."""

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
from rocketmq_reindex.storage_format.kernels.jit import FOLDER
from rocketmq_reindex.storage_format.one import loop as one
from rocketmq_reindex.storage_format.two import loop as two
assert FOLDER.startswith({folder!r}), FOLDER
print(one.f(0), two.f(0), *(sum(f.stats.cache_hits.values()) for f in (one.f, two.f)))
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def called(folder: Path) -> list[int]:
    """What both loops give, and whether they were compiled before."""
    words = [sys.executable, "-I", "-B", "-c", CALL.format(folder=str(folder))]
    done = subprocess.run(words, env=os.environ | {"NUMBA_CACHE_DIR": ""}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_change_deep_in_the_package_makes_compiled_code_anew(tmp_path: Path) -> None:
    shutil.copytree(rocketmq_reindex.__path__[0], tmp_path / "rocketmq_reindex", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "rocketmq_reindex" / "storage_format"
    for name, step in (("one", 1), ("two", 2)):
        put(package / name / "__init__.py", "")
        put(package / name / "deep" / "__init__.py", "")
        put(package / name / "deep" / "step.py", f"STEP = {step}\n")
        # The same module name, function name, line and bytecode.
        put(package / name / "loop.py", LOOP.format(package=name))
    assert called(tmp_path) == [1, 2, 0, 0]
    assert called(tmp_path) == [1, 2, 1, 1]
    (package / "one" / "deep" / "step.py").write_text("STEP = 3\n")
    assert called(tmp_path) == [3, 2, 0, 0]
    (package / "two" / "deep" / "step.py").rename(package / "two" / "deep" / "stride.py")
    put(package / "two" / "loop.py", LOOP.format(package="two").replace("step import", "stride import"))
    assert called(tmp_path) == [3, 2, 0, 0]
