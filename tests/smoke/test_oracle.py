"""Builds of random stores of RocketMQ 5.5.0 are its own rebuild, byte for byte.

tests/oracle has the other versions, ``make oracle`` many more stores of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.judge import judge
from tests.oracle.scenarios import Scenario, make
from tests.oracle.test_oracle import SEED

VERSION = "5.5.0"
COUNT = 30
FEATURES = 25
"""``Feature`` in tests/oracle/src: those of 5.x."""


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    """The same ones in every run."""
    return make(VERSION, SEED, COUNT, tmp_path_factory.mktemp(VERSION) / "stores")


def test_equals_the_real_rebuild(scenarios: list[Scenario], tmp_path: Path) -> None:
    """Ours, and the reference's: a failure tells version, seed, file and field."""
    assert [words for scenario in scenarios for words in judge(scenario, tmp_path / "out")] == []


def test_the_scenarios_are_of_all_kinds(scenarios: list[Scenario]) -> None:
    """Each feature is there, and is left out; and no two scenarios are of one kind."""
    kinds = [frozenset[str](scenario.settings["features"]) for scenario in scenarios]
    everything = frozenset[str]().union(*kinds)
    assert len(everything) == FEATURES
    assert frozenset[str]().union(*(everything - kind for kind in kinds)) == everything
    assert len(set(kinds)) == len(kinds)
