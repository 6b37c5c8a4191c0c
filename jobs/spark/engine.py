"""What a build asks of Spark, and nothing else: run a function over numbers, keep packed rows, shuffle them once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketmq_reindex.jobs.spark import full_disk, session
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.worker import setup as worker
from rocketmq_reindex.udfs.worker.setup import Batches

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.spark.observing import Observer


class Engine(Protocol):
    """Runs the functions of ``udfs``. ``cores`` is how many tasks run at once."""

    cores: int

    def buckets(self, wanted: int) -> tuple[int, ...]:
        """Fix the shuffle for this many buckets or more; returns each bucket's key."""

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        """Run over the numbers below ``tasks``; rows (``schemas.ROWS``) are kept, the data of summaries is returned."""

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        """The data of the kept rows of one kind, but for some ranges. For what is known to be little."""

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        """Shuffle the kept rows of one kind, but for some ranges, by key, in order of bucket and place; what reducers say."""

    def numbers(self, function: Batches, count: int) -> list[str]:
        """What a function says over the numbers below ``count``, a task each."""

    def forget(self) -> None:
        """Drop the kept rows."""


class SparkEngine:
    """DataFrames only, so that it runs wherever DataFrames do. ``observer``: Spark counts along. ``own``: so is the session."""

    def __init__(self, spark: SparkSession, observer: Observer | None = None, own: bool = False) -> None:
        self.spark, self._observer, self.own = spark, observer, own
        self._frames: list[DataFrame] = []
        self.cores = session.cores(spark)
        self._partitions = 1

    def buckets(self, wanted: int) -> tuple[int, ...]:
        asked = int(self.spark.conf.get("spark.reindex.buckets", None) or 0)
        self._partitions, count = session.plan_shuffle(
            asked or max(self.cores, wanted), self.cores, session.asked_partitions(self.spark)
        )
        return session.bucket_keys(asked or count, self._partitions)

    def over(self, function: Batches, count: int, ddl: str) -> DataFrame:
        """What a function makes of the numbers below ``count``, a task each."""
        return self.spark.range(0, count, 1, count).mapInArrow(lambda batches: worker.run(function, batches), ddl)

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        frame = self.over(function, tasks, schemas.ROWS_DDL)
        # Kept on disk, not in the heap. A platform that cannot keep rows scans again when they are asked for.
        with contextlib.suppress(NotImplementedError):
            frame = frame.persist(StorageLevel.DISK_ONLY)
        self._frames.append(frame)
        summaries = frame.filter(F.col("kind") == schemas.SUMMARY).select("data")
        rows = self._observer.scan(summaries).collect() if self._observer else summaries.collect()
        return [bytes(row.data) for row in rows]

    def _rows(self, kind: int, left_out: list[int]) -> DataFrame:
        rows = self._frames[0].filter(F.col("kind") == kind)
        for frame in self._frames[1:]:
            rows = rows.union(frame.filter(F.col("kind") == kind))
        if left_out:
            # One text: isin() calls the JVM for each number, and most of a log may be left out behind damage.
            rows = rows.filter(f"range_number NOT IN ({','.join(map(str, left_out))})")
        return rows

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        return [bytes(row.data) for row in self._rows(kind, left_out).select("data").collect()]

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        rows = self._rows(kind, left_out)
        if before is not None:
            rows = rows.mapInArrow(lambda batches: worker.run(before, batches), schemas.ROWS_DDL)
        rows = rows.repartition(self._partitions, F.col("key")).sortWithinPartitions("bucket", "sort_key")
        words = rows.mapInArrow(lambda batches: worker.run(reducer, batches), schemas.RESULT_DDL)
        return self._said(words, kind in (schemas.UNITS, schemas.BATCHES))

    def numbers(self, function: Batches, count: int) -> list[str]:
        return self._said(self.over(function, count, schemas.RESULT_DDL), True)

    def _said(self, words: DataFrame, of_files: bool) -> list[str]:
        rows = self._observer.write(words).collect() if self._observer and of_files else words.collect()
        return [str(row.data) for row in rows]

    def forget(self) -> None:
        for frame in self._frames:
            frame.unpersist()
        self._frames = []


class SparkEngines:
    """Opens the engine of a run, and closes what it opened."""

    def __init__(self, master: str, observer: Observer | None = None, delta: bool = False, hadoop_user: str = "") -> None:
        self._master, self._observer, self._delta, self._hadoop_user = master, observer, delta, hadoop_user

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        spark, own = session.get_session(self._master, self._delta, self._hadoop_user)
        engine = SparkEngine(spark, self._observer, own)
        try:
            with session.run_settings(spark):
                try:
                    with full_disk.named(spark):
                        yield engine
                finally:
                    engine.forget()
        finally:
            if own:
                session.stop(spark)
