"""Compiled code is found again only by what runs the same sources with the same compiler, and only if it is whole."""

from __future__ import annotations

import compileall
import os
import shutil
from pathlib import Path

import pytest

from tests.tools.compiled_copy import TWIN, called, copied, put, step


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose loops are compiled."""
    folder = copied(tmp_path_factory.mktemp("once") / "copy")
    assert called(folder) == [1, 2, 0, 0]
    return folder


@pytest.fixture
def compiled(once: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(once, tmp_path / "copy"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(tmp_path / "copy")


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
        pytest.param("import numba, llvmlite; llvmlite.__version__ = '0.0.1'", (), {}, marks=pytest.mark.slow),
        ("", (), {"NUMBA_CPU_NAME": "generic"}),
        # Without assert statements.
        pytest.param("", ("-O",), {}, marks=pytest.mark.slow),
    ],
    ids=["numba", "llvmlite", "processor", "optimized"],
)
def test_another_compiler_makes_it_anew(
    before: str, options: tuple[str, ...], environment: dict[str, str], compiled: Path
) -> None:
    assert called(compiled, before, "", *options, **environment) == [1, 2, 0, 0]


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


def test_a_package_removed_or_half_written_meanwhile_is_no_failure(copy: Path) -> None:
    """An installer replaces it while a run compiles: the run goes on, and keeps nothing."""
    path = step(copy, "one", 1)
    removed = f"import shutil; shutil.rmtree({str(path.parent)!r})"
    assert called(copy, then=removed) == [1, 2, 0, 0]
    step(copy, "one", 1)
    put(path.with_name("__init__.py"), "")
    half = f"open({str(path)!r}, 'w').write('STEP = (')"
    assert called(copy, then=half) == [1, 2, 0, 0]
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


def test_a_file_that_is_not_whole_is_not_run(compiled: Path) -> None:
    first, second = (compiled / TWIN / "kernels" / "__pycache__").glob("*/loop.f-*.nbc")
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(b"")
    assert called(compiled) == [1, 2, 0, 0]
    assert called(compiled) == [1, 2, 1, 1]
