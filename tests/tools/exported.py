"""Stores to export, and what an export has."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

import rocketmq_reindex as rr
from tests.tools.make_log import random_log

SEGMENT: Final = 1 << 15
COLUMNS: Final = ("commitLogOffset", "topic", "queueId", "storeTime", "keys", "properties", "body")


def damaged_store(place: Path) -> Path:
    """Returns a new store of several segments, with all that a log may hold: one is missing, and two are damaged."""
    random_log(place / "commitlog", 31, records=300, segment_size=SEGMENT)
    segments = sorted((place / "commitlog").iterdir())
    segments[3].unlink()
    for path in segments[1:3]:
        with open(path, "r+b") as segment:
            segment.seek(SEGMENT // 2)
            segment.write(b"\xff" * 300)
    return place


def rows_of(place: Path, kind: str) -> list[dict[str, Any]]:
    """Returns the rows of an export of Parquet, Delta or Iceberg, by their places in the log, whichever files they are in."""
    if kind == "delta":
        table = deltalake.DeltaTable(place).to_pyarrow_table()
    elif kind == "iceberg":
        # Each process of the tests imports this module; few of them read Iceberg.
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(str(place)).scan().to_arrow()
    else:
        table = ds.dataset(place, partitioning=ds.partitioning(flavor="hive")).to_table()
    return sorted(table.to_pylist(maps_as_pydicts="lossy"), key=lambda row: row["commitLogOffset"])


def check_spark_reads(frame: DataFrame, store: Path) -> tuple[list[dict[str, Any]], list[datetime.datetime]]:
    """Hold what Spark reads of an export of a whole store against ``rr.messages``. Returns its rows, and their times."""
    wanted = rr.messages(store).read_all().select(COLUMNS).to_pylist(maps_as_pydicts="strict")
    found = sorted((row.asDict() for row in frame.select(*COLUMNS).collect()), key=lambda row: int(row["commitLogOffset"]))
    times = [row.pop("storeTime").astimezone(datetime.timezone.utc) for row in found]
    assert times == [row.pop("storeTime") for row in wanted]
    assert found == wanted
    return found, times
