"""How far tasks are, through the staging folder: written seldom, of all attempts the furthest, never in the way of the work."""

from __future__ import annotations

import os
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rocketmq_reindex.udfs import staging as udfs_staging
from rocketmq_reindex.udfs.staging import BucketsPosition, Position, Positions, StagingFolder, mean_of


@pytest.fixture
def staging(tmp_path: Path) -> StagingFolder:
    made = StagingFolder(str(tmp_path / "staging"))
    (tmp_path / "staging").mkdir()
    made.make()
    return made


class Clock:
    """Stands still until it is told the time."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(udfs_staging, "time", made)
    return made


def written(staging: StagingFolder) -> list[str]:
    return os.listdir(staging.progress)


def test_short_work_writes_nothing(staging: StagingFolder, clock: Clock) -> None:
    position = Position(staging, "0", 100)
    for done in range(101):
        clock.seconds += 0.003
        position.moved(done)
    assert written(staging) == []


def test_the_driver_sees_the_furthest_attempt(staging: StagingFolder, clock: Clock) -> None:
    first, second, other = Position(staging, "3", 200), Position(staging, "3", 200), Position(staging, "index-3", 4)
    seen = Positions(staging)
    assert seen.shares() == {}
    clock.seconds += 1
    first.moved(150)
    second.moved(20)
    other.moved(1)
    assert seen.shares() == {"3": 0.75, "index-3": 0.25}
    clock.seconds += 1
    second.moved(100)
    first.moved(200)
    assert seen.shares() == {"3": 1.0, "index-3": 0.25}
    assert len(written(staging)) == 3
    assert os.listdir(staging.temporary) == []


def test_at_most_two_writes_a_second(staging: StagingFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    writes: list[float] = []
    monkeypatch.setattr("rocketmq_reindex.files.write_bytes", lambda *_: writes.append(clock.seconds))
    rng, position, begin = random.Random(seed), Position(staging, "0", 100_000), clock.seconds
    for done in range(100_000):
        clock.seconds += rng.uniform(0, 0.001)
        position.moved(done)
    assert all(later - one >= udfs_staging.INTERVAL for one, later in pairwise(writes))
    assert begin + udfs_staging.INTERVAL <= writes[0] < begin + 0.5
    assert len(writes) > (clock.seconds - begin) / 0.5


def test_stores_with_requests_are_asked_seldom(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    staging, requests = StagingFolder("s3://bucket/staging"), list[tuple[str, float]]()
    monkeypatch.setattr("rocketmq_reindex.files.write_bytes", lambda *_: requests.append(("write", clock.seconds)))

    def listing(_: str) -> list[object]:
        requests.append(("list", clock.seconds))
        return []

    monkeypatch.setattr("rocketmq_reindex.files.listing", listing)
    position, seen = Position(staging, "0", 600), Positions(staging)
    for second in range(600):
        clock.seconds += 1
        position.moved(second)
        seen.shares()
    kinds = [kind for kind, _ in requests]
    assert 55 <= kinds.count("write") <= 60
    assert 55 <= kinds.count("list") <= 61


def test_a_folder_that_is_gone_stops_no_work(staging: StagingFolder, clock: Clock) -> None:
    position = Position(staging, "0", 10)
    shutil.rmtree(staging.root)
    clock.seconds += 1
    position.moved(5)
    assert not os.path.exists(staging.root)


def test_work_without_parts(staging: StagingFolder, clock: Clock) -> None:
    position = Position(staging, "0", 0)
    clock.seconds += 1
    position.moved(0)
    assert written(staging) == []


def test_the_end_is_told_at_once(staging: StagingFolder) -> None:
    Position(staging, "7", 10).ended(10)
    assert Positions(staging).shares() == {"7": 1.0}
    Position(staging, "8", 0).ended(0)
    assert len(written(staging)) == 1


def test_a_hot_bucket_tells_all_of_its_units(staging: StagingFolder) -> None:
    """Tasks learn their units from the rows alone: one of them may have nearly all."""
    units, buckets = {3: 100, 5: 0, 9: 1_000_000}, 1000
    mean = mean_of(sum(units.values()), buckets)
    for bucket, count in units.items():
        position = BucketsPosition(staging, "queues", mean)
        for _ in range(10):
            position.moved(bucket, count // 10)
        position.ended()
    shares = Positions(staging).shares()
    assert sorted(shares) == ["queues-3", "queues-9"]
    done = mean * sum(shares.values())
    assert 0.99 < done / sum(units.values()) <= 1


def test_a_task_of_several_buckets_is_one_work(staging: StagingFolder) -> None:
    position = BucketsPosition(staging, "queues", 10)
    for bucket in (4, 8, 12):
        position.moved(bucket, 5)
    position.ended()
    assert Positions(staging).shares() == {"queues-4": 1.5}


def test_a_task_without_rows_tells_nothing(staging: StagingFolder) -> None:
    BucketsPosition(staging, "queues", 10).ended()
    assert written(staging) == []
