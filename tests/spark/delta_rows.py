"""Tables of ``--tables`` as tests read them, and builds that write them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from rocketmq_reindex.jobs.api.running import make_build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.run import Build
from rocketmq_reindex.jobs.command.tables_place import table_path
from rocketmq_reindex.jobs.spark.engine import SparkEngine
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.table_schema import BUILDS, TABLES, Table
from tests.golden.stores import GoldenStore
from tests.tools.local_engine import QuietReporter, single


def read(spark: SparkSession, place: Path, table: Table) -> DataFrame:
    return spark.read.format("delta").load(table_path(str(place), table.name))


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*(columns or frame.columns)).collect())


def versions(place: Path) -> dict[str, int]:
    """The newest version of each table that is there."""
    found = {}
    for table in TABLES:
        if (place / table.name / "_delta_log").is_dir():
            found[table.name] = max(int(path.stem) for path in (place / table.name / "_delta_log").glob("*.json"))
    return found


def words(golden: GoldenStore, out: Path, place: Path | str, **more: Any) -> BuildSettings:
    given: dict[str, Any] = {"store": str(golden.path), "out": str(out), "tables": str(place), **golden.sizes(), **more}
    return BuildSettings(**given).check()


def of(spark: SparkSession, place: Path, table: Table, build: str) -> DataFrame:
    return read(spark, place, table).where(F.col("build") == build)


def outcome(spark: SparkSession, place: Path, build: str) -> tuple[int, str]:
    """Attempt and state of a build, of which there is one row."""
    row = only(of(spark, place, BUILDS, build).collect())
    return row.attempt, row.state


def only(found: list[Row]) -> Row:
    (row,) = found
    return row


def commit(place: Path, table: Table, version: int) -> Path:
    return place / table.name / "_delta_log" / f"{version:020d}.json"


class AfterScan(SparkEngine):
    """Does something when the scan has been done."""

    then: Callable[[], None]

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        found = super().scan(function, tasks)
        self.then()
        return found


def job_with(settings: BuildSettings, spark: SparkSession, then: Callable[[Build], None]) -> Build:
    engine = AfterScan(spark)
    job = make_build(settings, QuietReporter(), single(engine))
    engine.then = lambda: then(job)
    return job


def at_once(call: Callable[[str], None]) -> list[Exception]:
    """Calls a function in two threads, and returns what it raised."""
    failed: list[Exception] = []

    def runs(name: str) -> None:
        try:
            call(name)
        except Exception as error:  # noqa: BLE001  a thread's error would be lost
            failed.append(error)

    threads = [threading.Thread(target=runs, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed
