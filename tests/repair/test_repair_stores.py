"""Damaged stores of the real RocketMQ, repaired: the real one starts, cuts nothing, serves what survived, and goes on writing.

``make repair`` has many more of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.real import RealStores
from tests.repair.sweep import VERSIONS, judged
from tests.tools.tiers import ends

SEED = 200
COUNT = 1


@pytest.mark.parametrize("version", ends(VERSIONS))
def test_damaged_stores(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path) as real:
        found = list(judged(real, tmp_path, SEED, COUNT))
    assert [line for one in found for line in one.lines(version)] == []
    assert sum(one.counts["ranges"] for one in found) >= COUNT
    assert sum(one.counts["survivors"] for one in found) > 20 * COUNT
