"""A life of a real controller group: preflight says what each start does. ``tests.preflight.group_sweep`` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.group_lives import VERSIONS, live
from tests.preflight.group_sweep import wrong
from tests.preflight.real import RealStores


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_life(version: str, seed: int, tmp_path: Path) -> None:
    with RealStores(version, tmp_path / "real") as real:
        life = live(real, tmp_path / "life", seed)
    assert wrong(life) == []
    assert all(found.counts["dispatch.records"] for found in life.comparisons.values())
