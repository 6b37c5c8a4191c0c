"""Which of a test's parameters belong to `make slow`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest


def ends(values: Iterable[object]) -> list[object]:
    """Parameters of a test: the first and the last value as they are, those between them marked as slow.

    Of versions from the oldest to the newest: what both do, those between seldom do in another way.
    """
    first, *between, last = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in between), last]


def half(ones: Iterable[object], others: Iterable[object]) -> list[object]:
    """Pairs of parameters, of which every second one is marked as slow. Each value of both is in one that is not."""
    pairs = product(enumerate(ones), enumerate(others))
    return [
        pytest.param(one, other, marks=[pytest.mark.slow] if (number + place) % 2 else [])
        for (number, one), (place, other) in pairs
    ]
