"""What ``inspect`` says of an IndexFile's chains."""

from __future__ import annotations

import numpy as np
import pytest

from rocketmq_reindex.jobs.inspecting.index import _histogram


@pytest.mark.parametrize(
    ("length", "name"),
    [(1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-10"), (10, "5-10"), (11, "11-100"), (100, "11-100"), (101, "over 100")],
)
def test_slots_by_the_length_of_their_chain(length: int, name: str) -> None:
    assert _histogram(np.array([0, length, length], np.int64)) == {name: 2}
