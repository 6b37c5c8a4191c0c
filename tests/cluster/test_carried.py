"""The compiled loops in the zip of ``make dist``: what fits a host is loaded, all else is compiled, nothing foreign is run."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from llvmlite import binding

from rocketmq_reindex.storage_format.kernels import cache_folder
from scripts.dist import DIST
from tests.compiled.test_cache_folder import Marks
from tests.tools.faulty_processes import ROOT

ZIP = DIST / "rocketmq_reindex.zip"
CALL = """
import sys
from llvmlite import binding
lacking = sys.argv[2:]
known = binding.get_host_cpu_features()
binding.get_host_cpu_features = lambda: type(known)(known | dict.fromkeys(lacking, False))
sys.path.insert(0, sys.argv[1])
from rocketmq_reindex.jobs.watching import watch
line = watch.compiling_line(watch.SCAN_LOOP)
from rocketmq_reindex.storage_format.kernels import cache_folder
from rocketmq_reindex.storage_format.kernels.raw_bytes import moved_on
assert cache_folder.__file__.startswith(sys.argv[1])
assert moved_on(1, 0) == 1 and moved_on(1, 7) == moved_on(moved_on(1, 3), 4)
loaded, compiled = (sum(counts.values()) for counts in (moved_on.stats.cache_hits, moved_on.stats.cache_misses))
level = cache_folder.carried_level()
print(level.name if level else "none", loaded, compiled, line or "nothing is said")
"""
LINE = "compiling the record loops, once (some 25 s)"

fits = cache_folder.fitting(binding.get_host_cpu_features())
pytestmark = pytest.mark.skipif(fits is None, reason="no loops are compiled ahead for this processor")


def called(archive: Path, home: Path, *lacking: str, **environment: str) -> str:
    """What a process with nothing but the zip says of the loop that it calls; its processor lacks some features."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    words = [sys.executable, "-I", "-c", CALL, str(archive), *lacking]
    done = subprocess.run(
        words, env=kept | {"HOME": str(home)} | environment, capture_output=True, text=True, timeout=900, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compiled(home: Path) -> list[str]:
    """What processes of that user have compiled."""
    return sorted(path.name.partition("-")[0] for path in (home / ".cache" / "numba").rglob("*.nbc"))


def altered(folder: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A zip of its own, with members changed, or left out."""
    made = folder / "altered.zip"
    with zipfile.ZipFile(ZIP) as archive, zipfile.ZipFile(made, "w") as other:
        for name in archive.namelist():
            content = change(name, archive.read(name))
            if content is not None:
                other.writestr(name, content)
    return made


def is_loop(name: str) -> bool:
    return "/carried/" in name and "/raw_bytes.moved_on-" in name


def test_it_compiles_nothing(tmp_path: Path) -> None:
    assert fits is not None
    assert called(ZIP, tmp_path) == f"{fits.name} 1 0 nothing is said"
    assert compiled(tmp_path) == []
    # An executor's user may have no folder to keep anything in.
    assert called(ZIP, tmp_path, XDG_CACHE_HOME="relative") == f"{fits.name} 1 0 nothing is said"


@pytest.mark.parametrize(
    ("lacking", "environment"), [("pclmul", {}), ("avx2", {}), ("", {"NUMBA_CPU_NAME": "x86-64-v2"})]
)  # fmt: skip
def test_what_fits_none_is_compiled(lacking: str, environment: dict[str, str], tmp_path: Path) -> None:
    """A processor with fewer features; one that was named, which may be the one of other hosts."""
    assert called(ZIP, tmp_path, *lacking.split(), **environment) == f"none 0 1 {LINE}"
    assert compiled(tmp_path) == ["raw_bytes._times", "raw_bytes.moved_on"]


def test_a_level_without_what_a_better_one_has(tmp_path: Path) -> None:
    assert called(ZIP, tmp_path, "avx512f") == "x86-64-v3 1 0 nothing is said"


@pytest.mark.parametrize(
    "spoil", [lambda content: content[:-1], lambda content: content[:50] + b"?" + content[51:], lambda _: b""]
)
def test_a_spoilt_loop_is_compiled(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    archive = altered(tmp_path, lambda name, content: spoil(content) if is_loop(name) else content)
    assert called(archive, tmp_path).split()[1:3] == ["0", "1"]
    assert compiled(tmp_path) == ["raw_bytes._times", "raw_bytes.moved_on"]


def test_loops_of_other_sources_are_not_run(tmp_path: Path) -> None:
    """The stamp of the sources is in the name of their folder: what it does not fit is not even unpickled."""
    mark = tmp_path / "mark"
    data = pickle.dumps(Marks(mark))

    def trapped(name: str, content: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=32).digest() + data if is_loop(name) else content

    def edited(name: str, content: bytes) -> bytes | None:
        if name.endswith("/storage_format/errors.pyc"):
            return None
        return content + b"# edited\n" if name.endswith("/storage_format/errors.py") else trapped(name, content)

    assert called(altered(tmp_path, edited), tmp_path) == f"none 0 1 {LINE}"
    assert not mark.exists()
    # The trap works: who may write into the zip has written what is run anyway.
    with pytest.raises(AssertionError):
        called(altered(tmp_path, trapped), tmp_path / "other")
    assert mark.exists()


def test_the_zip_has_what_a_build_and_a_verify_call() -> None:
    with zipfile.ZipFile(ZIP) as archive:
        names = [name for name in archive.namelist() if "/carried/" in name]
        # The same sources give the same bytes, wherever the checkout lies.
        assert not [name for name in names if os.fsencode(ROOT) in archive.read(name)]
    root = "rocketmq_reindex/storage_format/kernels"
    for level in cache_folder.LEVELS:
        # The stamp of this checkout: else ``make dist`` has not run since.
        folder = f"{root}/{cache_folder.carried_place(level)}/"
        loops = {name.removeprefix(folder).partition("-")[0] for name in names if name.startswith(folder)}
        assert {"loop.walk", "cells.sort_by_queue", "file.link_items", "index._check_items", cache_folder.LIST} <= loops
    with zipfile.ZipFile(next(DIST.glob("*.whl"))) as wheel:
        assert not [name for name in wheel.namelist() if name.endswith(cache_folder.SUFFIX)]
