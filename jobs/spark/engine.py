"""The engine that runs on Spark's DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.engines.tasks import plan_shuffle
from rocketmq_reindex.jobs.spark import full_disk, session, shuffle, worker_python
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.worker import setup as worker
from rocketmq_reindex.udfs.worker.setup import Batches


class SparkEngine:
    """Runs on DataFrames only, so it works wherever DataFrames do. ``own``: the session was started by this process."""

    def __init__(self, spark: SparkSession, own: bool = False) -> None:
        self.spark, self.own = spark, own
        self._frames: list[DataFrame] = []
        self.cores = session.cores(spark)
        self._partitions = 1

    @property
    def is_here(self) -> bool:
        return session.is_here()

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        _ = staging
        asked = int(self.spark.conf.get("spark.reindex.buckets", None) or 0)
        self._partitions, count = plan_shuffle(
            asked or max(self.cores, wanted), self.cores, shuffle.asked_partitions(self.spark)
        )
        return shuffle.bucket_keys(asked or count, self._partitions)

    def over(self, function: Batches, count: int, ddl: str) -> DataFrame:
        """Return the rows that a function makes of the numbers below ``count``, a task each."""
        return self.spark.range(0, count, 1, count).mapInArrow(lambda batches: worker.run(function, batches), ddl)

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        frame = self.over(function, tasks, schemas.ROWS_DDL)
        # Kept on disk, not in the heap. A platform that cannot keep rows scans again when they are asked for.
        with contextlib.suppress(NotImplementedError):
            frame = frame.persist(StorageLevel.DISK_ONLY)
        self._frames.append(frame)
        return [bytes(row.data) for row in frame.filter(F.col("kind") == schemas.SUMMARY).select("data").collect()]

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
        return _texts(rows.mapInArrow(lambda batches: worker.run(reducer, batches), schemas.RESULT_DDL))

    def numbers(self, function: Batches, count: int) -> list[str]:
        return _texts(self.over(function, count, schemas.RESULT_DDL))

    def forget(self) -> None:
        for frame in self._frames:
            frame.unpersist()
        self._frames = []

    def give_up(self) -> None:
        """Nothing: a session may have jobs of others, and a signal that ends a run ends its JVM or Spark's own jobs."""


def _texts(results: DataFrame) -> list[str]:
    return [str(row.data) for row in results.collect()]


class SparkEngines:
    """Opens the engine of a run, and stops the session if this process started it."""

    def __init__(self, master: str, delta: bool = False, hadoop_user: str = "", spark: SparkSession | None = None) -> None:
        """``spark``: the session to work in; it is not stopped."""
        self._master, self._delta, self._hadoop_user, self._spark = master, delta, hadoop_user, spark

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        if self._spark is not None:
            spark, own = self._spark, False
        else:
            spark, own = session.get_session(self._master, self._delta, self._hadoop_user)
        engine = SparkEngine(spark, own)
        settings = session.RUN_SETTINGS | (session.FEW_ROWS if own and not self._delta else {})
        try:
            with session.run_settings(spark, settings):
                try:
                    with full_disk.named(spark), worker_python.named(spark):
                        yield engine
                finally:
                    engine.forget()
        finally:
            if own:
                session.stop(spark)
