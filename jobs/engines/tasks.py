"""How many tasks a stage has, and how the rows of a shuffle are spread over them.

The bytes of the work decide, as well as the cores that are there now: where executors come later (dynamic allocation,
autoscaling, a cluster that is slow to start) a session begins with few cores, or with none.
"""

from __future__ import annotations

from typing import Final

TASKS_PER_CORE: Final = 4
"""of a stage, at least: enough that all cores end at about the same time, and few, since each task costs 0.2 s by itself"""
LOG_BYTES: Final = 1 << 30
"""Commitlog bytes that one task reads, at most: some seconds of work, beside which 0.2 s are little"""
DERIVED_BYTES: Final = 4 << 30
"""Commitlog bytes whose units or items one task takes, at most: they are a small part of the log"""
BUCKET_BYTES = 512 << 20
"""Commitlog bytes whose units one bucket takes: bounds what a writing task holds at once"""


def task_count(things: int, size: int, cores: int, task_bytes: int = LOG_BYTES) -> int:
    """Return how many tasks share so many things of ``size`` bytes in all; 0 for nothing.

    ``task_bytes`` is the most that a task takes, unless a thing by itself has more.
    """
    return min(things, max(TASKS_PER_CORE * cores, -(-size // task_bytes)))


def plan_shuffle(buckets: int, cores: int, asked: int) -> tuple[int, int]:
    """Return (partitions, buckets) of a shuffle for at least so many buckets.

    A bucket bounds what a task holds, and a task costs time by itself. So there are few tasks, each of which takes equally many
    buckets one after another. ``asked`` is the user's own number of partitions, 0 for none.
    """
    partitions = asked or task_count(buckets, buckets * BUCKET_BYTES, cores, DERIVED_BYTES)
    return partitions, buckets if partitions >= buckets else -(-buckets // partitions) * partitions
