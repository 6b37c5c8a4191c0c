"""An engine runs a function over numbers, keeps packed rows, and shuffles them once: how many tasks, and stages side by
side.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.staging import StagingFolder

# ----------------------------------------------------------------------------------------------------------------------- engine


class Engine(Protocol):
    """Runs the functions of ``udfs``. ``cores`` is how many tasks run at once as the run begins."""

    cores: int

    @property
    def is_here(self) -> bool:
        """Whether all tasks run on this machine, as far as is known."""

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        """Fix the shuffle for this many buckets or more. Return each bucket's key.

        ``staging`` is the folder of the run, where rows may be kept.
        """

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        """Run a function over the numbers below ``tasks``, keep rows (``handover.ROWS``), return the data of summaries."""

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        """Return the data of the kept rows of one kind, without some ranges. Use it only for few rows."""

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        """Shuffle the kept rows of one kind, without some ranges, by key, sorted by bucket and ``sort_key``.

        Return the results of the reducers.
        """

    def numbers(self, function: Batches, count: int) -> list[str]:
        """Return the results of a function over the numbers below ``count``, a task each."""

    def each_number(self, function: Batches, count: int) -> Iterator[str]:
        """Yield what ``numbers`` returns, in the order of the numbers. Use it where a few results are large."""

    def forget(self) -> None:
        """Drop the kept rows."""

    def give_up(self) -> None:
        """End what other threads wait for, as far as the engine can: the run has failed."""


Engines = Callable[[], contextlib.AbstractContextManager[Engine]]
"""Opens the engine of a run, and closes it"""


# ------------------------------------------------------------------------------------------------------------------------ tasks
# How many tasks a stage has, and how the rows of a shuffle are spread over them.
#
# The bytes of the work decide, as well as the cores that are there now: where executors come later (dynamic allocation,
# autoscaling, a cluster that is slow to start) a session begins with few cores, or with none.

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


# ----------------------------------------------------------------------------------------------------------------------- beside
# Stages that ask the same engine at the same time, in threads of the driver.


@contextlib.contextmanager
def beside(engine: Engine, name: str) -> Iterator[ThreadPoolExecutor]:
    """Yield two threads for stages that run beside this thread. If it fails or is interrupted, their stages end, too."""
    with ThreadPoolExecutor(2, thread_name_prefix=name) as pool:
        try:
            yield pool
        except BaseException:
            engine.give_up()
            raise
