"""One commit, one verdict: the seed of random tests is fixed, and what a run leaves in the temporary folder is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.tools import seeds
from tests.tools.faulty_processes import ROOT
from tests.tools.seeds import SEED

TEST = "tests/tools/test_seeds.py::test_the_seed"


FAILING = """
def test_it(seed, tmp_path):
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert seed < 2007

def test_another(seed):
    pass
"""


def test_the_seed(seed: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert seed == int(os.environ.get("REINDEX_SEED", SEED))


def test_hypothesis_draws_the_same_examples_and_shrinks_none() -> None:
    chosen = settings.get_profile("project")
    assert chosen.derandomize == ("REINDEX_SEED" not in os.environ)
    assert (chosen.database, Phase.shrink in chosen.phases) == (None, False)


@pytest.mark.parametrize(("current", "drawn"), [(SEED, 25), (7, 4)])
def test_other_seeds_have_fewer_cases(current: int, drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "_current", current)
    assert seeds.cases(25, 4) == drawn


@pytest.mark.parametrize("given", ["", "7"])
def test_a_run_leaves_nothing_and_tells_its_seed(given: str, tmp_path: Path) -> None:
    names = ("REINDEX_SEED", "REINDEX_JAVA_TMP")
    environment = {name: value for name, value in os.environ.items() if name not in names and "PYTEST" not in name}
    environment |= {"TMPDIR": str(tmp_path)} | ({"REINDEX_SEED": given} if given else {})
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "random", "-p", "no:cacheprovider", "-p", "no:xdist", TEST]
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    assert f"REINDEX_SEED={given or SEED}\n" in told.stdout
    # Of pytest's own folder an empty one stays, with a link to nothing.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_many_seeds_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tools.seeds", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["--rootdir", str(tmp_path), "--seeds", "5", str(tmp_path / "test_failing.py")]
    environment = {**os.environ, "REINDEX_SEED": "7", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in told.stdout
    assert "REINDEX_SEED=2007 repeats it, after 2 seeds that passed" in told.stdout
    assert "1 of 2 tests had 5 seeds each" in told.stdout
    assert "     3 test_failing.py::test_it" in told.stdout
    del environment["REINDEX_SEED"]
    refused = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 4
    assert "set REINDEX_SEED" in refused.stderr
