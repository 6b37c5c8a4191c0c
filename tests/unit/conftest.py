"""A unit test takes milliseconds: one that hangs fails after two minutes."""

from __future__ import annotations

import pytest

PATIENCE = 120


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(PATIENCE))
