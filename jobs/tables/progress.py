"""Keep the row of a run that goes on up to date: which stage it is in, and how far."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.watching.progress import Reporter, Shown, Stage

INTERVAL = 60.0
"""seconds between two updates at least"""
SHARE: Final = 1 / 30
"""of the time since the start, between two updates at least: so a day has some 150, since each is a version of the table"""
POOL: Final = "rmq-reindex-tables"
"""A pool of Spark's fair scheduler: a job of one small task in it does not wait behind a scan of thousands."""
_PATIENCE: Final = 10.0
"""seconds that the end of a run waits for an update under way"""


class Progress(Shown):
    """Calls ``update`` with stage, bytes done and bytes in all, seldom, from a thread of its own.

    An update that fails is left out: the next one, or the end of the run, says more.
    """

    def __init__(self, spark: SparkSession, reporter: Reporter, update: Callable[[str, int, int], None]) -> None:
        self._spark, self._reporter, self._update = spark, reporter, update
        self._stage: Stage | None = None
        self._size = 0
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the stages of the reporter. Afterwards no update comes any more."""
        shown, thread = self._reporter.shown, threading.Thread(target=self._run, name="tables-progress", daemon=True)
        self._reporter.shown = [*shown, self]
        thread.start()
        try:
            yield
        finally:
            self._reporter.shown = shown
            self._over.set()
            # Where Spark's scheduler is no fair one, an update waits behind a scan that may have been interrupted.
            thread.join(_PATIENCE)

    def stage_started(self, stage: Stage) -> None:
        self._stage, self._size = stage, 0

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        _ = stage, things
        self._size = size

    def _run(self) -> None:
        into_pool(self._spark)
        begin = self._reporter.elapsed()
        while not self._over.wait(pause(self._reporter.elapsed() - begin)):
            if (stage := self._stage) is not None:
                with contextlib.suppress(Exception):
                    self._update(stage.name, self._size, stage.total_bytes)


def pause(seconds: float) -> float:
    """Return the seconds until the next update of a run that is as old as that."""
    return max(INTERVAL, seconds * SHARE)


def into_pool(spark: SparkSession) -> None:
    """Run what this thread asks of Spark in a pool of its own, where the scheduler is a fair one."""
    # A session of Spark Connect has no SparkContext.
    with contextlib.suppress(Exception):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
