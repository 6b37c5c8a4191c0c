"""A run that compiles its record loops says so before it does, and only then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.verify import verify
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.storage_format.kernels import cache_folder
from tests.golden.stores import GoldenStore

LINE = "compiling the record loops, once (some 25 s)"


def test_a_folder_without_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    tmp_path.chmod(0o700)
    assert watch.compiling_line(watch.SCAN_LOOP) == LINE
    folder = Path(cache_folder.find())
    (folder / "crc32.crc32-0123.nbc").touch()
    assert watch.compiling_line(watch.SCAN_LOOP) == LINE
    (folder / "loop.walk-0123.nbc").touch()
    assert watch.compiling_line(watch.SCAN_LOOP) == ""


def test_plain_python_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert watch.compiling_line(watch.SCAN_LOOP) == ""


@pytest.mark.parametrize(
    ("engine", "master", "here"),
    [("local", "", True), ("spark", "", True), ("spark", "local[2]", True), ("spark", "spark://host:7077", False)],
)
def test_only_what_this_machine_compiles(engine: str, master: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert watch.runs_here(engine, master) is here


@pytest.mark.parametrize(("compiled", "first"), [(False, LINE), (True, "scan: ")])
def test_build_and_verify_say_it_first(
    compiled: bool,
    first: str,
    golden_store: Callable[[str], GoldenStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cache_folder, "holds", lambda _: compiled)
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    golden, out = golden_store("trimmed-head"), tmp_path / "out"
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in golden.sizes().items()]
    words = ["--engine", "local", "--master", "local[1]", *sizes]
    assert build([str(golden.path), "--out", str(out), "--dry-run", *words]) == 0
    assert LINE not in capsys.readouterr().err, "a plan reads nothing"
    assert build([str(golden.path), "--out", str(out), *words]) == 0
    assert capsys.readouterr().err.startswith(first)
    assert verify([str(out), "--commitlog", str(golden.path / "commitlog"), *words]) == 0
    assert capsys.readouterr().err.startswith(first)
