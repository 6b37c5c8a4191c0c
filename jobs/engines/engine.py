"""An engine runs a function over numbers, keeps packed rows, and shuffles them once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from rocketmq_reindex.udfs.worker.setup import Batches


class Engine(Protocol):
    """Runs the functions of ``udfs``. ``cores`` is how many tasks run at once as the run begins."""

    cores: int

    def buckets(self, wanted: int) -> tuple[int, ...]:
        """Fix the shuffle for this many buckets or more; returns each bucket's key."""

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


Engines = Callable[[], AbstractContextManager[Engine]]
"""Opens the engine of a run, and closes it"""
