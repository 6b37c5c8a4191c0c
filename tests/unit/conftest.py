"""A unit test takes milliseconds, or seconds: one that hangs fails after ten minutes.

What waits until its files are on the disk waits for all that other tests write there, too.
"""

from __future__ import annotations

import pytest

PATIENCE = 600


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(PATIENCE))
