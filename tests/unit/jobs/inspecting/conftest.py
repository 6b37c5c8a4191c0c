"""What the tests of inspect have in common."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.watching import watch


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an inspect takes more than a second, and would say so on stderr, where these tests want nothing."""
    monkeypatch.setattr(watch, "_SILENT", 600.0)
