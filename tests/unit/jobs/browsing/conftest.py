"""Stores that several tests of the pages take."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.browsing import searching
from tests.golden.stores import GoldenStore


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a search of the log is not cut short on a busy machine."""
    monkeypatch.setattr(searching, "PART_SECONDS", 100.0)


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
