"""Builds of random stores of RocketMQ 5.5.0 are its own rebuild, byte for byte.

tests/oracle has more of them and those of the other versions, ``make oracle`` many more of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.judge import judge
from tests.oracle.scenarios import Scenario, make
from tests.oracle.test_oracle import SEED

VERSION = "5.5.0"
FIRST = SEED + 24
"""Those before are in tests/oracle."""
COUNT = 8


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    """The same ones in every run."""
    return make(VERSION, FIRST, COUNT, tmp_path_factory.mktemp(VERSION) / "stores")


def test_equals_the_real_rebuild(scenarios: list[Scenario], tmp_path: Path) -> None:
    """Ours, and the reference's: a failure tells version, seed, file and field."""
    assert [words for scenario in scenarios for words in judge(scenario, tmp_path / "out")] == []
