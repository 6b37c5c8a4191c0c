"""Worlds of the tests on incremental runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incremental.verify_world import Growing
from tests.incremental.world import World
from tests.tools.faulty_children import Children, children


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    found = Growing(tmp_path)
    found.grow(200)
    return found


@pytest.fixture
def world(tmp_path: Path, seed: int) -> World:
    made = World(tmp_path)
    made.append(random.Random(seed), 120)
    return made


@pytest.fixture(scope="package")
def warm() -> Iterator[Children]:
    with children() as found:
        yield found
