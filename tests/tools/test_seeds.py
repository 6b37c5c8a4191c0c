"""One commit, one verdict: the seed of random tests is fixed, and what a run leaves in the temporary folder is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.conftest import SEED
from tests.tools.faulty_processes import ROOT

TEST = "tests/tools/test_seeds.py::test_the_seed"


def test_the_seed(seed: int) -> None:
    assert seed == int(os.environ.get("REINDEX_SEED", SEED))


def test_hypothesis_draws_the_same_examples_and_shrinks_none() -> None:
    chosen = settings.get_profile("project")
    assert chosen.derandomize == ("REINDEX_SEED" not in os.environ)
    assert (chosen.database, Phase.shrink in chosen.phases) == (None, False)


@pytest.mark.parametrize("given", ["", "7"])
def test_a_run_leaves_nothing_and_tells_its_seed(given: str, tmp_path: Path) -> None:
    names = ("REINDEX_SEED", "REINDEX_JAVA_TMP")
    environment = {name: value for name, value in os.environ.items() if name not in names and "PYTEST" not in name}
    environment |= {"TMPDIR": str(tmp_path)} | ({"REINDEX_SEED": given} if given else {})
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "random", "-p", "no:cacheprovider", "-p", "no:xdist", TEST]
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    assert f"REINDEX_SEED={given or SEED}\n" in told.stdout
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("pytest-of-")] == []
