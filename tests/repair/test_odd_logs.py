"""Some random odd logs, built, verified and repaired twice; ``make odd-logs`` has many more, and starts the real RocketMQ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.odd_starts import judged


@pytest.mark.parametrize("first", [2, 28, 52])
def test_odd_logs(first: int, tmp_path: Path) -> None:
    found = [judged(tmp_path, number) for number in range(first, first + 3)]
    assert [line for one in found for line in one.lines()] == []
