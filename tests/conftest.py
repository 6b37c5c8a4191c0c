"""What all tests share: golden stores unpacked once, and seeds that are printed."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore, unpack


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
