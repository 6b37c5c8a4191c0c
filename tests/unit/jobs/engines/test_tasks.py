"""How many tasks a stage has."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.planning import even_range_size
from rocketmq_reindex.jobs.building.scanning import ScanMemory
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, plan_shuffle, task_count
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore

GIB = 1 << 30


@pytest.mark.parametrize(
    ("buckets", "cores", "asked", "expected"),
    [
        (2, 2, 0, (2, 2)),
        (16, 2, 0, (8, 16)),
        (17, 2, 0, (8, 24)),
        # 160 GiB and 10 TiB, where executors come later: each task takes the units of 4 GiB of the log.
        (320, 2, 0, (40, 320)),
        (20_480, 2, 0, (2_560, 20_480)),
        (20_480, 64, 0, (2_560, 20_480)),
        (20_480, 2_000, 0, (8_000, 24_000)),
        (16, 2, 7, (7, 21)),
        (16, 2, 200, (200, 16)),
        (1, 1, 1, (1, 1)),
    ],
)
def test_few_tasks_that_take_equally_many_buckets(buckets: int, cores: int, asked: int, expected: tuple[int, int]) -> None:
    assert plan_shuffle(buckets, cores, asked) == expected


@pytest.mark.parametrize(
    ("things", "size", "cores", "expected"),
    [
        (160, 160 * GIB, 2, 160),  # dynamic allocation: 2 is what a session says before executors come
        (160, 160 * GIB, 16, 160),
        (160, 160 * GIB, 64, 160),
        (10_240, 10_240 * GIB, 2, 10_240),
        (40_960, 10_240 * GIB, 64, 10_240),  # ranges of 256 MiB
        # A log that is small for its cores: few tasks, since each costs 0.2 s.
        (8, 8 * GIB, 2, 8),
        (16, 1 * GIB, 2, 8),
        (128, 8 * GIB, 16, 64),
        (5, 5_000, 2, 5),
        (0, 0, 2, 0),
    ],
)
def test_a_task_reads_a_gib_at_most(things: int, size: int, cores: int, expected: int) -> None:
    assert task_count(things, size, cores) == expected
    assert not expected or size / expected <= GIB


def test_tasks_on_derived_files_take_more_of_the_log() -> None:
    assert task_count(10_240, 10_240 * GIB, 2, DERIVED_BYTES) == 2_560
    assert task_count(100, 10_240 * GIB, 2, DERIVED_BYTES) == 100
    assert task_count(10_240, 8 * GIB, 2, DERIVED_BYTES) == 8


@pytest.mark.parametrize(
    ("segments", "segment_bytes", "cores", "expected"),
    [(160, GIB, 2, GIB), (3, 2 * GIB, 1, GIB), (8, GIB, 2, GIB), (1, GIB, 2, GIB // 4), (1, 1 << 20, 2, 1 << 20)],
)
def test_a_range_has_no_more_than_a_task_may_read(segments: int, segment_bytes: int, cores: int, expected: int) -> None:
    assert even_range_size(0, segments * segment_bytes, segment_bytes, cores) == expected
    assert even_range_size(1_000, segments * segment_bytes, segment_bytes, cores) == 1_000


def test_ranges_that_are_known_are_little_work(tmp_path: Path) -> None:
    memory = ScanMemory(ScanStore(str(tmp_path)), "", False)
    assert memory.work(10_240 * GIB) == 10_240 * GIB
    memory.bytes_before = 10_230 * GIB
    assert task_count(40_960, memory.work(10_240 * GIB), 2) == 10 + 160
