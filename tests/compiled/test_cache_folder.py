"""The folder of compiled code: numba unpickles what it finds there, so only a folder that is the user's alone is used."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketmq_reindex.storage_format.kernels
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.kernels import cache_folder
from tests.golden.stores import GoldenStore
from tests.tools.faulty_processes import ROOT

Stores = Callable[[str], GoldenStore]
COMMAND = Path(sys.executable).with_name("rmq-reindex")
HASH = """
import numpy
from rocketmq_reindex.storage_format.kernels import java_text
java_text._murmur3(numpy.frombuffer(b"orders#key", "u1"), 0, 10, numpy.zeros(2, "u8"))
print(sum(java_text._murmur3.stats.cache_hits.values()))
"""


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the environment names."""
    folder = tmp_path / "named"
    monkeypatch.setenv(cache_folder.VARIABLE, str(folder))
    return folder


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder is named, and the package cannot be written to, as one in a zip."""
    monkeypatch.delenv(cache_folder.VARIABLE, raising=False)
    monkeypatch.setattr(cache_folder, "__file__", str(tmp_path / "some.zip" / "storage_format" / "cache_folder.py"))
    (tmp_path / "some.zip").write_bytes(b"")


class Marks:
    """What its unpickling does."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def test_it_is_made_for_the_user_alone(named: Path) -> None:
    before = os.umask(0)
    try:
        found = Path(cache_folder.find())
    finally:
        os.umask(before)
    assert found.parent == named
    assert (named.stat().st_mode & 0o777, found.stat().st_mode & 0o777) == (0o700, 0o700)
    assert cache_folder.find() == str(found)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_one_that_others_may_write_to_is_refused(mode: int, named: Path) -> None:
    found = Path(cache_folder.find())
    for folder in (found, named):
        folder.chmod(mode)
        with pytest.raises(InputError, match=rf"NUMBA_CACHE_DIR: others may write to {folder}: .*mode 700"):
            cache_folder.find()
        folder.chmod(0o700)
    assert cache_folder.find() == str(found)


def test_one_of_somebody_else_is_refused(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(cache_folder.find()).parent == named
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(InputError, match="belongs to somebody else"):
        cache_folder.find()


def test_a_link_in_its_place_is_refused(named: Path, tmp_path: Path) -> None:
    found = Path(cache_folder.find())
    assert found.parent == named
    found.rmdir()
    (tmp_path / "elsewhere").mkdir()
    found.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is no folder"):
        cache_folder.find()


def test_a_folder_that_all_share_may_be_around_it(named: Path) -> None:
    """As /tmp: whoever made a folder there first cannot have it renamed by others."""
    named.mkdir()
    named.chmod(0o1777)
    assert Path(cache_folder.find()).parent == named


@pytest.mark.usefixtures("unwritable")
def test_the_users_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Path(cache_folder.find())
    assert found.parent == tmp_path / "cache" / "numba"
    # Nobody has named it: it is done without.
    found.chmod(0o777)
    assert cache_folder.find() == ""


@pytest.mark.usefixtures("unwritable")
def test_a_user_without_a_home_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba itself would take ``~`` in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    assert cache_folder.find() == ""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_folder.find() == ""
    assert not (tmp_path / "~").exists()


def test_code_that_somebody_prepared_is_not_run(named: Path, golden_store: Stores, tmp_path: Path) -> None:
    environment = os.environ | {cache_folder.VARIABLE: str(named)}
    words = [sys.executable, "-c", HASH]
    first = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    mark = tmp_path / "mark"
    spoilt = 0
    for path in named.rglob("*.nb*"):
        data = pickle.dumps(Marks(mark))
        path.write_bytes(hashlib.blake2b(data, digest_size=32).digest() + data)
        spoilt += 1
    assert (first, spoilt > 0) == ("0\n", True)
    named.chmod(0o777)
    segment = next((golden_store("trimmed-head").path / "commitlog").iterdir())
    for command in (["inspect", segment], ["build", segment.parent.parent, "--out", tmp_path / "out", "--master", "local[1]"]):
        done = subprocess.run(
            [str(COMMAND), *map(str, command)], env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: NUMBA_CACHE_DIR: others may write to {named}: ")
        assert done.stderr.count("\n") == 1
    assert not mark.exists()
    # The trap works: in a folder that is the user's alone it is run.
    named.chmod(0o700)
    subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert mark.exists()


ONCE = f"""
import contextlib, os, subprocess, sys, tempfile
from rocketmq_reindex.storage_format.kernels import cache_folder
cache_folder.__file__ = "/proc/nowhere/cache_folder.py"
os.environ["XDG_CACHE_HOME"] = "relative"
from rocketmq_reindex.jobs.command.results import Interrupts
from rocketmq_reindex.jobs.watching import watch
child = [sys.executable, "-c", {HASH!r}]
with contextlib.suppress(KeyboardInterrupt), Interrupts(), watch.loops_kept() as anew:
    both = [subprocess.Popen(child, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    print(anew, *sorted(one.communicate()[0].strip() for one in both))
    print(os.environ[cache_folder.VARIABLE], flush=True)
    os.kill(os.getpid(), 15)
print(cache_folder.VARIABLE in os.environ)
"""


def test_without_a_folder_a_run_compiles_once(tmp_path: Path) -> None:
    """Three processes at the same time: one compiles, the others wait for it. A signal removes the folder, too."""
    environment = {name: value for name, value in os.environ.items() if name != cache_folder.VARIABLE}
    words = [sys.executable, "-c", ONCE]
    done = subprocess.run(
        words, cwd=ROOT, env=environment | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True
    )  # fmt: skip
    first, folder, left = done.stdout.splitlines()
    assert first == "True 0 1 1"
    assert folder.startswith(str(tmp_path / "rmq-reindex-compiled-"))
    assert (left, list(tmp_path.iterdir())) == ("False", [])


def test_it_is_said(
    golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the summary, not in the manifest, which is the same on every machine."""
    from rocketmq_reindex.jobs.build import build
    from tests.tools.local_engine import InlineEngine, single

    asked = []

    def none(*_words: object) -> object:
        asked.append(1)
        return tempfile.TemporaryDirectory(dir=tmp_path)

    monkeypatch.setattr(watch, "loops_kept", none)
    monkeypatch.setattr("rocketmq_reindex.jobs.api.running.needs_engine", lambda *_: False)
    monkeypatch.setattr("rocketmq_reindex.jobs.spark.engine.SparkEngines", lambda *_, **__: single(InlineEngine()))
    store = golden_store("trimmed-head")
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in store.sizes().items()]
    words = [str(store.path), "--out", str(tmp_path / "out"), *sizes]
    assert build(words) == 0
    assert asked == [1]
    assert f"warning: {watch.COMPILING_NOTE}" in capsys.readouterr().err.splitlines()
    assert watch.COMPILING_NOTE not in (tmp_path / "out" / "reindex.json").read_text()


def test_the_package_itself_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache_folder.VARIABLE, raising=False)
    assert Path(cache_folder.find()).parent == Path(rocketmq_reindex.storage_format.kernels.__path__[0]) / "__pycache__"


def test_folders_that_nobody_uses_are_removed(named: Path, tmp_path: Path) -> None:
    """Those of sources that are gone: not one in use, nor anything else."""
    named.mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    long_ago = time.time() - 40 * 86400
    for name in ("rmq-reindex-old", "rmq-reindex-young", "other"):
        (named / name).mkdir()
        (named / name / "f.nbc").write_bytes(b"")
        if name != "rmq-reindex-young":
            os.utime(named / name, (long_ago, long_ago))
    (named / "rmq-reindex-link").symlink_to(tmp_path / "elsewhere")
    os.utime(named / "rmq-reindex-link", (long_ago, long_ago), follow_symlinks=False)
    found = Path(cache_folder.find())
    assert {path.name for path in named.iterdir()} == {found.name, "rmq-reindex-young", "other", "rmq-reindex-link"}
    # What is used is young again.
    os.utime(found, (long_ago, long_ago))
    assert Path(cache_folder.find()).stat().st_mtime > long_ago + 86400
