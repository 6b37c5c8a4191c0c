"""The time left: of a steady stage right from the first time it is told, of one that changes its pace soon after."""

from __future__ import annotations

import random

import pytest

from rocketmq_reindex.jobs.watching.progress import Pace

Lefts = list[tuple[float, float]]


def told(moves: list[tuple[float, float]], every: float = 0.5) -> Lefts:
    """(seconds, time left) where it is told, of a stage that a reporter looks at; ``moves`` are (when, share)."""
    pace, found, seconds = Pace(), [], 0.0
    while seconds < moves[-1][0]:
        seconds += every
        share = max((share for when, share in moves if when <= seconds), default=0.0)
        pace.add(seconds, share)
        if pace.left is not None:
            assert pace.left >= 0
            found.append((seconds, pace.left))
    return found


def steady(begin: float, end: float, step: float, jitter: float = 0.0, seed: int = 0) -> list[tuple[float, float]]:
    rng = random.Random(seed)
    count = round((end - begin) / step)
    return [(begin + k * step + rng.uniform(0, jitter), k / count) for k in range(1, count + 1)]


@pytest.mark.parametrize("length", [8, 60, 900])
@pytest.mark.parametrize("start", [0.0, 1.5, 45.0])
def test_a_steady_stage(start: float, length: float, seed: int) -> None:
    """Whatever it took to start: the first time left is told after four seconds at most, and none is off by much."""
    end = start + length
    found = told(steady(start, end, 0.4, 0.3, seed))
    assert found[0][0] - start < 4
    for seconds, left in found:
        if end - seconds > 1:
            assert 0.5 < left / (end - seconds) < 1.6, (seconds, left)


def test_a_stage_whose_tasks_tell_seldom(seed: int) -> None:
    """Two tasks of a bucket that each tell something every ten seconds."""
    end = 300.0
    found = told(sorted(steady(0, end, 10, 1, seed)))
    assert found[0][0] < 60
    for seconds, left in found:
        if end - seconds > 30:
            assert 0.5 < left / (end - seconds) < 2, (seconds, left)


def test_a_stage_that_becomes_slower() -> None:
    """Half of the work in 30 s, the other in 300 s."""
    moves = [(k * 0.5, k / 120) for k in range(1, 61)] + [(30 + k * 5, 0.5 + k / 120) for k in range(1, 61)]
    found = dict(told(moves))
    assert found[30.0] == pytest.approx(30, rel=0.2)
    assert found[60.0] == pytest.approx(270, rel=0.5)
    assert found[120.0] == pytest.approx(210, rel=0.15)


def test_nothing_is_told_before_it_says_something() -> None:
    pace = Pace()
    for seconds in range(100):
        pace.add(seconds, 0.0)
        assert pace.left is None
    for k, share in enumerate((0.1, 0.2, 0.3)):
        pace.add(100 + k, share)
        assert pace.left is None, "three moves: two between them"
    pace.add(103, 0.4)
    assert pace.left == pytest.approx(6)


def test_what_is_known_at_once_is_no_pace() -> None:
    """Ranges that an earlier run scanned are done in no time; what is left is scanned."""
    found = told([(0.1, 0.9), *((1 + k, 0.9 + k / 200) for k in range(1, 21))])
    assert found[0][1] == pytest.approx(21 - found[0][0], rel=0.6)


def test_a_stage_that_stands_still_has_ever_more_left() -> None:
    pace = Pace()
    for k in range(20):
        pace.add(k, k / 100)
    lefts = []
    for k in range(20, 60):
        pace.add(k, 0.19)
        assert pace.left is not None
        lefts.append(pace.left)
    assert lefts == sorted(lefts)
