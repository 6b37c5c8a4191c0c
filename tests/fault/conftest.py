"""What the tests of faults share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.sweep import scratch, warm_up


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder for one case at a time, in memory where that can be; the record loops are compiled."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    warm_up(folder / "case")
    yield folder / "case"
    shutil.rmtree(folder)
