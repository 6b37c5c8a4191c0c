"""Which of a test's parameters belong to `make slow`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def ends(values: Iterable[object]) -> list[object]:
    """Parameters of a test: the first and the last value as they are, those between them marked as slow.

    Of versions from the oldest to the newest: what both do, those between seldom do in another way.
    """
    first, *between, last = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in between), last]
