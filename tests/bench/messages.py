"""How fast ``rr.messages`` and the SQL source read a log of 1 KiB records: all columns, and headers without bodies.

``python -m tests.bench.messages [--gib 8]`` makes the log in .bench/ once, and prints MB of log a second, the best of three.
``--sql`` reads by ``rocketmq-commitlog`` in a session with Spark's own settings: the first of five rounds compiles.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rocketmq_reindex as rr
from tests.bench.logs import BENCH, log_bytes, warm_page_cache
from tests.bench.template_log import write_log

RECORD = 1024
BODY = 866
WAYS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "no bodies": {"body": "none"},
    "headers alone": {
        "body": "none",
        "columns": ["topic", "queueId", "consumeQueueOffset", "commitLogOffset", "msgSize", "storeTimestamp"],
    },
}

SQL: dict[str, dict[str, str]] = {
    "SQL, all columns": {},
    "SQL, with bodies": {"body": "true"},
    "SQL, topic alone": {"columns": "topic"},
}


def made(gib: int) -> Path:
    """The store, with ``gib`` segments of 1 GiB."""
    store = BENCH / f"messages-{gib}"
    if not store.exists():
        count = gib * ((1 << 30) // RECORD - 1)
        queues = np.random.default_rng(1).integers(0, 64, count).astype(np.int32)
        write_log(store.with_name(f".making-{store.name}") / "commitlog", queues, queues_a_topic=8, body=BODY)
        store.with_name(f".making-{store.name}").rename(store)
    return store


def by_arrow(store: Path) -> dict[str, Callable[[], int]]:
    """Each way of ``rr.messages``: it returns the number of rows."""

    def read(keywords: dict[str, Any]) -> int:
        return sum(batch.num_rows for batch in rr.messages(store, **keywords))

    return {name: partial(read, keywords) for name, keywords in WAYS.items()}


def by_sql(store: Path) -> dict[str, Callable[[], int]]:
    """Each way of the SQL source: Spark takes every value of every row, and keeps none."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rr.sql.register(spark)

    def read(options: dict[str, str]) -> int:
        rows = spark.read.format("rocketmq-commitlog").options(**options).load(str(store))
        rows.write.format("noop").mode("overwrite").save()
        return 0

    return {name: partial(read, options) for name, options in SQL.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--sql", action="store_true")
    given = parser.parse_args()
    store = made(given.gib)
    size = log_bytes(store)
    warm_page_cache(store)
    for name, read in (by_sql if given.sql else by_arrow)(store).items():
        best, rows = float("inf"), 0
        for _ in range(5 if given.sql else 3):
            began = time.perf_counter()
            rows = read()
            best = min(best, time.perf_counter() - began)
        counted = f"{rows:,} rows, " if rows else ""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"{name:16} {counted}{size / best / 1e6:,.0f} MB/s, {best:.1f} s, peak memory {peak:,} MiB")


if __name__ == "__main__":
    main()
