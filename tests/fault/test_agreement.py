"""``verify`` and ``build`` take the same decision on every damaged log, and on every odd one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fault.agreement import LOGS, check
from tests.tools.seeds import cases

NUMBERS = {"odd queues": 6, "stale": 3}
USUAL = 5
MANY = {"flips": 400, "odd queues": 800, "stale": 80}
USUALLY_MANY = 160


@pytest.mark.parametrize("kind", LOGS)
def test_they_agree(kind: str, seed: int, tmp_path: Path) -> None:
    """On a few of each kind; ``make slow`` has many."""
    few = random.Random(seed).sample(range(MANY.get(kind, USUALLY_MANY)), 1)
    check(kind, seed, cases(list(range(NUMBERS.get(kind, USUAL))), few), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGS)
def test_they_agree_on_many(kind: str, seed: int, tmp_path: Path) -> None:
    check(kind, seed, range(MANY.get(kind, USUALLY_MANY)), tmp_path)
