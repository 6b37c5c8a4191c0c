"""Compiled code is never stale: it is found again only by what runs the same sources with the same compiler."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketmq_reindex
from rocketmq_reindex.storage_format.kernels import stamp

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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the package in it, and in that two modules of one name: the same function, line and bytecode."""
    folder = tmp_path / "copy"
    parts = Path(rocketmq_reindex.__path__[0])
    for name in ("__init__.py", "storage_format"):
        ignored = shutil.ignore_patterns("__pycache__")
        put(folder / "rocketmq_reindex" / "x", "")
        if (parts / name).is_dir():
            shutil.copytree(parts / name, folder / "rocketmq_reindex" / name, ignore=ignored)
        else:
            put(folder / "rocketmq_reindex" / name, "")
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
        words, env=os.environ | {"NUMBA_CACHE_DIR": ""} | environment, capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_change_deep_in_the_package_makes_compiled_code_anew(copy: Path) -> None:
    assert called(copy) == [1, 2, 0, 0]
    assert called(copy) == [1, 2, 1, 1]
    step(copy, "one", 3)
    assert called(copy) == [3, 2, 0, 0]
    old = step(copy, "two", 2)
    old.rename(old.with_name("stride.py"))
    put(copy / TWIN / "two" / "loop.py", LOOP.format(package="two").replace("step import", "stride import"))
    assert called(copy) == [3, 2, 0, 0]


def test_all_modules_are_in_the_stamp() -> None:
    """A folder without ``__init__.py`` can be imported, too, but not be listed: there may be none."""
    package = Path(rocketmq_reindex.__path__[0])
    paths = {path.relative_to(package).with_suffix("") for path in (package / "storage_format").rglob("*.py")}
    found = {".".join(("rocketmq_reindex", *path.parts)).removesuffix(".__init__") for path in paths}
    assert set(stamp.names()) == found - {"rocketmq_reindex.storage_format"}


def test_checkouts_share_a_folder_and_a_link_is_the_same_package(copy: Path, tmp_path: Path) -> None:
    """Nor has the environment a say in what is stale: numba's own way looks at a function's own file only."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    other = tmp_path / "other"
    shutil.copytree(copy, other)
    step(other, "one", 3)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "rocketmq_reindex").symlink_to(copy / "rocketmq_reindex")
    assert called(copy, **cache) == [1, 2, 0, 0]
    assert called(other, **cache) == [3, 2, 0, 0]
    assert called(tmp_path / "link", **cache) == [1, 2, 1, 1]
    assert called(other, **cache) == [3, 2, 1, 1]


@pytest.mark.parametrize(
    ("before", "options", "environment"),
    [
        ("import numba; numba.__version__ = '0.0.1'", (), {}),
        ("import numba, llvmlite; llvmlite.__version__ = '0.0.1'", (), {}),
        ("", (), {"NUMBA_CPU_NAME": "generic"}),
        # Without assert statements.
        ("", ("-O",), {}),
    ],
    ids=["numba", "llvmlite", "processor", "optimized"],
)
def test_another_compiler_makes_it_anew(
    before: str, options: tuple[str, ...], environment: dict[str, str], copy: Path
) -> None:  # fmt: skip
    assert called(copy) == [1, 2, 0, 0]
    assert called(copy, before, "", *options, **environment) == [1, 2, 0, 0]


def test_without_sources(copy: Path) -> None:
    """Bytecode alone, as some images have it."""
    step(copy, "one", 1)
    compileall.compile_dir(copy, quiet=2, legacy=True)
    for path in copy.rglob("*.py"):
        path.unlink()
    assert called(copy) == [1, 2, 0, 0]
    assert called(copy) == [1, 2, 1, 1]
    path = step(copy, "one", 3)
    compileall.compile_file(path, quiet=2, legacy=True)
    path.unlink()
    assert called(copy) == [3, 2, 0, 0]


def test_sources_edited_meanwhile_are_not_kept(copy: Path) -> None:
    """It is not known which of them a module that was imported meanwhile comes from."""
    path = step(copy, "one", 1)
    edit = f"open({str(path)!r}, 'w').write('STEP = 3')"
    assert called(copy, then=edit) == [1, 2, 0, 0]
    assert called(copy) == [3, 2, 0, 0]
    step(copy, "one", 1)
    assert called(copy) == [1, 2, 0, 0]


def test_what_python_itself_takes_for_unchanged_is_not_kept(copy: Path) -> None:
    """An edit of the same size in the same second: Python runs what it compiled before."""
    path = step(copy, "one", 1)
    compileall.compile_dir(copy, quiet=2)
    looked = path.stat()
    step(copy, "one", 3)
    os.utime(path, ns=(looked.st_atime_ns, looked.st_mtime_ns))
    assert called(copy) == [1, 2, 0, 0]
    shutil.rmtree(path.parent / "__pycache__")
    assert called(copy) == [3, 2, 0, 0]


def test_a_file_that_is_not_whole_is_not_run(copy: Path) -> None:
    assert called(copy) == [1, 2, 0, 0]
    first, second = (copy / TWIN / "kernels" / "__pycache__").glob("*/loop.f-*.nbc")
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(b"")
    assert called(copy) == [1, 2, 0, 0]
    assert called(copy) == [1, 2, 1, 1]
