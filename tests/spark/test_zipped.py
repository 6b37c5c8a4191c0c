"""The package in a zip, as executors have it: compiled code is found again wherever the zip lies, or done without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rocketmq_reindex

CALL = """
import numpy
from rocketmq_reindex.storage_format.kernels import java_text
assert ".zip/" in java_text.__file__, java_text.__file__
words = numpy.zeros(2, "u8")
java_text._murmur3(numpy.frombuffer(b"orders#key", "u1"), 0, 10, words)
print(*words, sum(java_text._murmur3.stats.cache_hits.values()))
"""


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    made = tmp_path / "one" / "reindex.zip"
    made.parent.mkdir()
    with zipfile.ZipFile(made, "w") as archive:
        for folder in ("", "storage_format/", "storage_format/*/"):
            for path in Path(rocketmq_reindex.__path__[0]).glob(f"{folder}*.py"):
                archive.write(path, Path("rocketmq_reindex", path.relative_to(rocketmq_reindex.__path__[0])))
    return made


def hashed(zipped: Path, **environment: str) -> tuple[list[int], bool]:
    """The hash by code in the zip, and whether it was compiled before."""
    words = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(zipped)!r})\n{CALL}"]
    done = subprocess.run(words, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    first, second, hits = map(int, done.stdout.split())
    return [first, second], hits > 0


def test_another_path_finds_what_was_compiled(zipped: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    words, known = hashed(zipped, NUMBA_CACHE_DIR=cache)
    assert not known
    moved = shutil.move(zipped.parent, tmp_path / "two")
    assert hashed(Path(moved, zipped.name), NUMBA_CACHE_DIR=cache) == (words, True)


def test_a_folder_that_cannot_be_made_is_done_without(zipped: Path) -> None:
    assert hashed(zipped, NUMBA_CACHE_DIR="/proc/nowhere")[1] is False


def test_without_a_name_it_is_the_users_own_cache(zipped: Path, tmp_path: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "home")}
    words, _ = hashed(zipped, **environment)
    assert list((tmp_path / "home").glob("numba/rmq-reindex-*/java_text._murmur3-*.nbc"))
    assert hashed(zipped, **environment) == (words, True)
