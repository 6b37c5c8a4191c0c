"""Stores that several tests of the pages take."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore


@pytest.fixture
def damaged(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> Path:
    """A store whose second record is none, and which lacks its checkpoint."""
    store = tmp_path / "damaged"
    shutil.copytree(golden_store("basic-5.3").path, store)
    with open(min((store / "commitlog").iterdir()), "r+b") as segment:
        segment.seek(3004)
        segment.write(b"\1\2\3\4")
    (store / "checkpoint").unlink()
    return store
