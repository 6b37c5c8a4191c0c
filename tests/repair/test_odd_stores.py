"""Random odd logs of each version, repaired: the real RocketMQ gives a consumer all that survives, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.real import RealStores
from tests.repair.odd_judge import RELEASES, SAME_VERSION, version_of
from tests.repair.odd_starts import judged
from tests.tools.tiers import ends

COUNT = 5
FOUND = (200272, 201595, 300645, 702385, 704383, 703541, 704815)
"""A new life whose only record has a flipped bit that no checksum covers; a file whose torn last record has less room than a
filler; a log without a sound record; two logs of one sound record, which say no version; two whose offsets are missing between
two lives of a queue, where a tombstone would be out of line."""
STARTED = (501431, 502363, 503507)
"""Logs whose recovery leaves a unit of zeros behind full ConsumeQueue files."""
EMPTIED = 554
"""A log whose recovery begins an empty ConsumeQueue file, which hides the queue."""
NOT_STARTED = (300765, 200731, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (300931, 301043, 751149)))
"""Logs whose recovery begins an empty ConsumeQueue file, on which 5.4 and, the others, 5.3 do not start."""


@pytest.mark.parametrize("number", ends(range(len(RELEASES))))
def test_odd_logs(number: int, tmp_path: Path) -> None:
    first = number * SAME_VERSION
    with RealStores(RELEASES[sorted(RELEASES)[number]], tmp_path) as real:
        found = [judged(tmp_path, seed, real) for seed in range(first, first + COUNT)]
    assert [line for one in found for line in one.lines()] == []
    assert sum(one.counts["started"] for one in found) > COUNT // 2


@pytest.mark.parametrize("seed", FOUND)
def test_logs_that_sweeps_found(seed: int, tmp_path: Path) -> None:
    assert judged(tmp_path, seed).lines() == []


@pytest.mark.parametrize("seed", NOT_STARTED)
def test_a_broker_starts_on_the_advised_build(seed: int, tmp_path: Path) -> None:
    with RealStores(RELEASES[version_of(seed)], tmp_path) as real:
        found = judged(tmp_path, seed, real)
    assert found.lines() == []
    assert found.counts["refused"] == 1


@pytest.mark.parametrize("seed", STARTED)
def test_logs_that_sweeps_found_started(seed: int, tmp_path: Path) -> None:
    with RealStores(RELEASES[version_of(seed)], tmp_path) as real:
        assert judged(tmp_path, seed, real).lines() == []


def test_a_queue_that_a_crash_hides_is_served_on_the_advised_build(tmp_path: Path) -> None:
    """A crash hides it, a clean stop does not (ConsumeQueue.truncateDirtyLogicFiles, correctMinOffset)."""
    with RealStores(RELEASES[version_of(EMPTIED)], tmp_path) as real:
        found = judged(tmp_path, EMPTIED, real, crashed=True)
    assert found.lines() == []
    assert found.counts["emptied"] == 1
