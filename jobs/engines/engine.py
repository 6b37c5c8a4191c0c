"""An engine runs a function over numbers, keeps packed rows, and shuffles them once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.worker.setup import Batches


class Engine(Protocol):
    """Runs the functions of ``udfs``. ``cores`` is how many tasks run at once as the run begins."""

    cores: int

    @property
    def is_here(self) -> bool:
        """Whether all tasks run on this machine, as far as is known."""

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        """Fix the shuffle for this many buckets or more; returns each bucket's key.

        ``staging`` is the folder of the run, where rows may be kept.
        """

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        """Run a function over the numbers below ``tasks``. Keeps rows (``schemas.ROWS``), and returns the data of summaries."""

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        """Return the data of the kept rows of one kind, without some ranges. Use it only for few rows."""

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        """Shuffle the kept rows of one kind, without some ranges, by key, sorted by bucket and ``sort_key``.

        Returns the results of the reducers.
        """

    def numbers(self, function: Batches, count: int) -> list[str]:
        """Return the results of a function over the numbers below ``count``, a task each."""

    def forget(self) -> None:
        """Drop the kept rows."""

    def give_up(self) -> None:
        """End what other threads wait for, as far as the engine can: the run has failed."""


Engines = Callable[[], AbstractContextManager[Engine]]
"""Opens the engine of a run, and closes it"""
