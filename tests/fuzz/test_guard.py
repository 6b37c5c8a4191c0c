"""The guard refuses what it is there for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.guard import Guarded, OutOfRange, TooMuchWork, allow


def test_indexes() -> None:
    allow(100)
    array = np.arange(5, dtype=np.uint8).view(Guarded)
    assert (array[4], array[1:3].tolist(), array[np.int64(0)]) == (4, [1, 2], 0)
    assert array[::-1].tolist() == [4, 3, 2, 1, 0]
    for key in (-1, np.int64(-1), np.int64(5), slice(-2, None), slice(0, -1)):
        with pytest.raises(OutOfRange):
            array[key]
    with pytest.raises(IndexError):
        array[5]
    with pytest.raises(OutOfRange):
        array[-1] = 0
    table = np.zeros((2, 3)).view(Guarded)
    with pytest.raises(OutOfRange):
        table[1, -1]
    assert table[1, 2] == 0


def test_work() -> None:
    allow(2)
    array = np.zeros(5).view(Guarded)
    array[0] = array[1]
    with pytest.raises(TooMuchWork):
        array[0]
