"""A broker that is killed while it delivers, restored from its log alone, delivers each message exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delayed.cases import levels, timers
from tests.delayed.run import run
from tests.delayed.sweep import LIVES, sweep_lives


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow)])
def test_delay_levels(version: str, seed: int, tmp_path: Path) -> None:
    outcome = run(version, levels(seed), tmp_path)
    assert outcome.faults == ()


@pytest.mark.slow
def test_timer_messages(seed: int, tmp_path: Path) -> None:
    outcome = run("5.5.0", timers(seed, "5.5.0"), tmp_path)
    assert outcome.faults == ()


def test_a_life_of_the_oldest_and_the_newest_version() -> None:
    """With all kinds of waiting messages, side by side: ``make restore-lives`` runs many, of each version."""
    assert sweep_lives([LIVES[0], LIVES[-1]], 79, 1, 2) == 0
