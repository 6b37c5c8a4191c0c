"""All targets under coverage-guided fuzzing, three at a time (two rounds), FUZZ_SECONDS each (2 if not set).

What was ever found, and all seeds, come first, however long they take.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.run import PATIENCE, fuzz_all

SECONDS = int(os.environ.get("FUZZ_SECONDS") or 2)
JOBS = 3


@pytest.mark.timeout(len(TARGETS) * (SECONDS + 2 * PATIENCE))
def test_nothing_is_found(seed: int, tmp_path: Path) -> None:
    outcomes = fuzz_all(list(TARGETS), SECONDS, seed or 1, JOBS, tmp_path)
    for outcome in outcomes:
        print(f"{outcome.target}: {outcome.inputs} inputs, coverage {outcome.coverage}, {outcome.kept} kept")
    failures = [f"{outcome.target}: {outcome.failure}" for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(failures)
    assert all(outcome.inputs > 10 for outcome in outcomes)
