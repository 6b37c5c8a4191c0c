"""The engine that runs on Spark's DataFrames: its shuffles, and a disk that Spark itself fills."""

import contextlib
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import mmh3
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.engine import Engine, plan_shuffle
from rocketmq_reindex.jobs.spark import gateway, session
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.worker import tasks as worker_tasks

# -------------------------------------------------------------------------------------------------------------------- full_disk
# A disk that Spark itself fills: its error names no folder.

_FULL: Final = "java.io.IOException: No space left on device"
_OWN: Final = re.compile(r"\bat org\.apache\.spark\.(storage|shuffle|broadcast|util\.collection)\.")
"""what writes to Spark's own folders: kept rows, shuffles, broadcasts"""
_CELLS: Final = "rmq-reindex-cells-"
"""begins the name of a folder of ours among them"""
_CELLS_FULL: Final = re.compile(rf"\[Errno 28\].*{_CELLS}")
_HOST: Final = re.compile(r"\((\S+) executor \S+\): java\.io\.IOException")


@contextlib.contextmanager
def named(spark: Any) -> Iterator[None]:
    """Raise InputError with the folder where Spark's own folder was full."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if not (_FULL in text and _OWN.search(text)) and not _CELLS_FULL.search(text):
            raise
        raise InputError(
            f"{_where(spark, text)}: No space left on device: Spark keeps there what it shuffles: free some, or name another "
            "folder, SPARK_LOCAL_DIRS or spark.local.dir: nothing was published"
        ) from error


def _where(spark: Any, text: str) -> str:
    """Return the folder; of several the one with the least room. On a cluster, the host."""
    with contextlib.suppress(Exception):
        context = spark.sparkContext
        if not str(context.master).startswith("local"):
            match = _HOST.search(text)
            return f"Spark's own folder on {escape(match[1])}" if match else "Spark's own folder on an executor"
        utils = context._jvm.org.apache.spark.util.Utils
        return escape(min(map(str, utils.getConfiguredLocalDirs(context._jsc.sc().conf())), key=_free))
    return "Spark's own folder"


def _free(folder: str) -> int:
    try:
        looked = os.statvfs(folder)
    except OSError:
        return 0
    return looked.f_bavail * looked.f_frsize


# ---------------------------------------------------------------------------------------------------------------------- shuffle
# The partitions of a shuffle by Spark: how many the user asks for, and which keys lead to them.

SHUFFLE_PARTITIONS_DEFAULT: Final = 200


def asked_partitions(spark: SparkSession) -> int:
    """Return the user's own number of shuffle partitions; 0 when there is none."""
    asked = int(spark.conf.get("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS_DEFAULT)) or 0)
    return 0 if asked == SHUFFLE_PARTITIONS_DEFAULT else asked


def bucket_keys(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return for each bucket a number that ``repartition(partitions, key)`` sends to partition ``bucket % partitions``.

    Spark's hash of an int is murmur3 (32 bits, seed 42), taken modulo the partitions.
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < min(buckets, partitions):
        target = mmh3.hash(struct.pack("<i", number), 42) % partitions
        if target < buckets:
            keys.setdefault(target, number)
        number += 1
    return tuple(keys[bucket % partitions] for bucket in range(buckets))


# ----------------------------------------------------------------------------------------------------------------------- engine


_RUNS: Final = (handover.RUNS, handover.BATCH_RUNS)
_FEW_TASKS: Final = 64
"""Tasks of a scan whose runs come with its summaries"""


class SparkEngine:
    """Runs on DataFrames only, so it works wherever DataFrames do. ``own``: the session was started by this process."""

    def __init__(self, spark: SparkSession, own: bool = False) -> None:
        self.spark, self.own = spark, own
        self._frames: list[DataFrame] = []
        self.cores = session.cores(spark)
        self._partitions = 1
        self._cells = _cell_folders(spark)
        self._runs: list[Row] | None = []
        """those of all scans, with the places of their cells; None where one of them has left them with Spark"""

    @property
    def is_here(self) -> bool:
        return session.is_here()

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        _ = staging
        asked = int(self.spark.conf.get("spark.reindex.buckets", None) or 0)
        self._partitions, count = plan_shuffle(asked or max(self.cores, wanted), self.cores, asked_partitions(self.spark))
        return bucket_keys(asked or count, self._partitions)

    def over(self, function: handover.Batches, count: int, ddl: str) -> DataFrame:
        """Return the rows that a function makes of the numbers below ``count``, a task each."""
        return self.spark.range(0, count, 1, count).mapInArrow(lambda batches: handover.run(function, batches), ddl)

    def scan(self, function: handover.Batches, tasks: int) -> list[bytes]:
        frame = self.over(self._placing(function), tasks, handover.ROWS_DDL)
        # Kept on disk, not in the heap. A platform that cannot keep rows scans again when they are asked for.
        with contextlib.suppress(NotImplementedError):
            frame = frame.persist(StorageLevel.DISK_ONLY)
        self._frames.append(frame)
        # Places are short: of a small log those of its runs come along, and no job has to collect them.
        kinds = [handover.SUMMARY, *(_RUNS if self._cells and tasks <= _FEW_TASKS else ())]
        found = frame.filter(F.col("kind").isin(kinds)).select("kind", "range_number", "data").collect()
        self._runs = [*self._runs, *found] if self._runs is not None and len(kinds) > 1 else None
        return [bytes(row.data) for row in found if row.kind == handover.SUMMARY]

    def _rows(self, kind: int, left_out: list[int]) -> DataFrame:
        rows = self._frames[0].filter(F.col("kind") == kind)
        for frame in self._frames[1:]:
            rows = rows.union(frame.filter(F.col("kind") == kind))
        if left_out:
            # One text: isin() calls the JVM for each number, and most of a log may be left out behind damage.
            rows = rows.filter(f"range_number NOT IN ({','.join(map(str, left_out))})")
        return rows

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        if self._runs is not None and kind in _RUNS:
            without = set(left_out)
            found = [row for row in self._runs if row.kind == kind and row.range_number not in without]
        else:
            found = self._rows(kind, left_out).select("data").collect()
        return [bytes(self._cells.cell(bytes(row.data)) if self._cells else row.data) for row in found]

    def reduce(self, kind: int, left_out: list[int], before: handover.Batches | None, reducer: handover.Batches) -> list[str]:
        rows = self._rows(kind, left_out)
        if before is not None:
            mapped = self._placing(self._placed(before))
            rows = rows.mapInArrow(lambda batches: handover.run(mapped, batches), handover.ROWS_DDL)
        rows = rows.repartition(self._partitions, F.col("key")).sortWithinPartitions("bucket", "sort_key")
        reduced = self._placed(reducer)
        return _texts(rows.mapInArrow(lambda batches: handover.run(reduced, batches), handover.RESULT_DDL))

    def _placing(self, function: handover.Batches) -> handover.Batches:
        return worker_tasks.Placing(function, self._cells) if self._cells else function

    def _placed(self, function: handover.Batches) -> handover.Batches:
        return worker_tasks.PlacedTask(function, self._cells) if self._cells else function

    def numbers(self, function: handover.Batches, count: int) -> list[str]:
        return _texts(self.over(function, count, handover.RESULT_DDL))

    def each_number(self, function: handover.Batches, count: int) -> Iterator[str]:
        frame = self.over(function, count, handover.RESULT_DDL)
        try:
            frame = frame.persist(StorageLevel.DISK_ONLY)
        except NotImplementedError:
            # Without kept rows each result would be a job by itself, one after another.
            yield from _texts(frame)
            return
        try:
            # All at once on the executors, which keep the results: the driver then takes one at a time.
            frame.count()
            yield from (str(row.data) for row in frame.toLocalIterator())
        finally:
            _let_go(frame)

    def forget(self) -> None:
        # First what needs no JVM: one that was killed removes nothing.
        for folder in self._cells.folders if self._cells else ():
            files.remove_tree(folder)
        self._cells, self._runs = None, []
        frames, self._frames = self._frames, []
        for frame in frames:
            _let_go(frame)

    def give_up(self) -> None:
        """Nothing: a session may have jobs of others, and a signal that ends a run ends its JVM or Spark's own jobs."""


def _let_go(frame: DataFrame) -> None:
    """Wait until no executor keeps rows: an answer that comes when the session has stopped makes the JVM print a trace."""
    # What an executor could not remove goes with it. A JVM that is gone is another error.
    with contextlib.suppress(PySparkException, Py4JJavaError):
        frame.unpersist(blocking=True)


def _cell_folders(spark: SparkSession) -> worker_tasks.CellFolders | None:
    """Return new folders in Spark's local folders, where all tasks run on this machine; None elsewhere.

    A session whose files on disk are to be encrypted keeps cells in its shuffle. So does one whose JVM has had a session with
    other local folders. The JVM removes the folders, too, as it ends.
    """
    with contextlib.suppress(Exception):
        context: Any = spark.sparkContext
        conf = context._jsc.sc().conf()
        if str(context.master).startswith("local") and conf.get("spark.io.encryption.enabled", "false").lower() != "true":
            # Not by SparkEnv: Spark 4.3 leaves classes out that its methods name, and each look at it prints the JVM's traces.
            utils = getattr(getattr(context._jvm.org.apache.spark.util, "Utils$"), "MODULE$")
            roots = [os.path.realpath(str(root)) for root in utils.getOrCreateLocalRootDirs(conf)]
            places = {os.path.realpath(str(place)) for place in utils.getConfiguredLocalDirs(conf)}
            if not {os.path.dirname(root) for root in roots} <= places:
                # A JVM makes them once: those of a session before, whose disk may have been full, are not this one's.
                return None
            made = tuple(tempfile.mkdtemp(prefix=_CELLS, dir=root) for root in roots)
            return worker_tasks.CellFolders(made, os.urandom(16)) if made else None
    return None


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
                    with named(spark), gateway.named(spark):
                        yield engine
                finally:
                    engine.forget()
        finally:
            if own:
                session.stop(spark)
