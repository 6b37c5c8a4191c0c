"""What all tests share: golden stores unpacked once, seeds that are printed, and how hypothesis runs."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.golden.stores import GoldenStore, unpack

# No deadline and no check of speed: the first call of a kernel compiles it, and others may have the machine. With a seed
# given, as in CI, hypothesis draws the same examples each time, too; else a failure tells how to repeat it.
settings.register_profile(
    "project",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="REINDEX_SEED" in os.environ,
    print_blob=True,
)
settings.load_profile("project")


@pytest.fixture(scope="session")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def golden_store(golden_root: Path) -> Callable[[str], GoldenStore]:
    """golden_store(name): the unpacked store with its sizes and its truth. Read it, do not change it."""
    return lambda name: unpack(name, golden_root)


@pytest.fixture(scope="session")
def golden(golden_root: Path) -> Callable[[str], Path]:
    """golden(name): the folder of the unpacked store. Read it, do not change it."""
    return lambda name: unpack(name, golden_root).path


@pytest.fixture
def seed() -> int:
    """A fresh seed, shown when the test fails; REINDEX_SEED=N repeats one."""
    chosen = int(os.environ.get("REINDEX_SEED") or random.SystemRandom().randrange(2**31))
    print(f"REINDEX_SEED={chosen}")
    return chosen
