"""Records of earlier lives of a queue, beside what a look at each pair of records says."""

from __future__ import annotations

import numpy as np
import pytest

from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.start.kept import HiddenRecords, QueueLives

SIZE = 100


def taken(hidden: list[bool], offsets: list[int], messages: list[int], cuts: list[int]) -> QueueLives:
    """The records, ``SIZE`` bytes each, taken in chunks."""
    lives = QueueLives()
    for low, high in zip([0, *cuts], [*cuts, len(hidden)], strict=True):
        at = np.arange(low, high, dtype=np.int64) * SIZE
        lives.take(
            np.array(hidden[low:high], np.bool_), np.array(offsets[low:high], np.int64), np.array(messages[low:high], np.int64),
            at, np.full(high - low, SIZE, np.int64),
        )  # fmt: skip
    return lives


def test_a_topic_that_was_made_again() -> None:
    lives = taken([True] * 5 + [False] * 3, [0, 1, 2, 3, 4, 0, 1, 2], [1] * 8, [2])
    assert (lives.earlier, lives.hidden()) == (5, HiddenRecords(0, INT64_MAX, -1, -1, -1))


def test_a_record_that_no_later_one_replaces() -> None:
    """Those below the later life's first offset, and those behind all that have a unit, are hidden."""
    lives = taken([True] * 5 + [False] * 2 + [True], [0, 1, 2, 3, 4, 3, 4, 2], [1] * 8, [])
    assert lives.earlier == 2
    found = lives.hidden()
    assert (found.count, found.low, found.high, found.first) == (4, 0, 3, 0)


@pytest.mark.parametrize("batches", [False, True])
def test_any_records(batches: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(300):
        count = int(rng.integers(1, 40))
        hidden = (rng.random(count) < rng.choice((0.1, 0.5, 0.9))).tolist()
        messages = rng.integers(1, 4, count).tolist() if batches else [1] * count
        offsets, at = [], 0
        for number in range(count):
            at = int(rng.integers(-2, 30)) if rng.random() < 0.2 else at
            offsets.append(at)
            at += messages[number]
        cuts = sorted(int(cut) for cut in rng.integers(0, count + 1, 3))
        lives = taken(hidden, offsets, messages, cuts)
        served = [k for k in range(count) if not hidden[k]]
        earlier = {k for k in range(count) if hidden[k] and any(j > k and offsets[j] <= offsets[k] for j in served)}
        left = [k for k in range(count) if hidden[k] and k not in earlier]
        found = lives.hidden()
        assert (lives.earlier, found.count, lives.is_empty) == (len(earlier), len(left), not left)
        if left:
            assert found.low == min((offsets[k] for k in left if offsets[k] >= 0), default=INT64_MAX)
            assert found.high == max(offsets[k] + messages[k] for k in left)
            assert found.first <= left[0] * SIZE
            assert found.end >= (left[-1] + 1) * SIZE
            if not earlier:
                assert (found.first, found.end) == (left[0] * SIZE, (left[-1] + 1) * SIZE)
