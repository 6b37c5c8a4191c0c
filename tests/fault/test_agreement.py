"""``verify`` and ``build`` take the same decision on every damaged log, and on every odd one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.agreement import LOGS, check

NUMBERS = {"flips": 100, "odd queues": 200, "stale": 10}
USUAL = 30


@pytest.mark.parametrize("kind", LOGS)
def test_they_agree(kind: str, seed: int, tmp_path: Path) -> None:
    check(kind, seed, range(NUMBERS.get(kind, USUAL)), tmp_path)
