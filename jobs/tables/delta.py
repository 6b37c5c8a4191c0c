"""Add rows to Delta tables, so that the same call twice adds nothing twice.

Nothing of Delta's Python package is needed: SQL and DataFrames do, on any session that knows the format.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from rocketmq_reindex.jobs.command.failures import innermost
from rocketmq_reindex.jobs.tables.making import is_conflict, literal

APPLICATION: Final = "rmq-reindex"
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""seconds at most, before it is tried again"""
_CUT: Final = re.compile(r"[\w.]+\.(ConnectionClosed|NoHttpResponse|NoSuchUpload|Socket|EOF)Exception\b|.*\bConnection reset\b")
"""What S3A does not try again: the reading of ranges whose answer breaks off (``S3AInputStream.readVectored``), and an upload
in parts that is whole, where the answer was lost and a server knows the upload no more."""
_SMALL_QUERIES: Final = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Java made and compiled for a query that runs once, over a handful of rows, is a fifth of the JVM's time with tables."""

Result = TypeVar("Result")


def small_queries(spark: SparkSession) -> dict[str, str]:
    """Return settings for many queries of few rows each, unless the session has others."""
    return {name: value for name, value in _SMALL_QUERIES.items() if spark.conf.get(name, None) is None}


def write(
    rows: DataFrame, path: str, build: str, run: str, step: int, *, replace: bool = False, pauses: Sequence[float] = PAUSES
) -> None:
    """Add the rows of one run of a build, or with ``replace`` replace all rows of that build.

    Delta keeps (application, version) of what was committed, so that the same ``step`` of the same run is passed over. It keeps
    them for ever, also when the rows are deleted: no other run may have the name ``run``, its rows would be passed over, too.
    """
    writer = rows.write.format("delta").option("txnAppId", f"{APPLICATION}/{run}").option("txnVersion", step)
    if replace:
        writer = writer.option("replaceWhere", f"build = {literal(build)}")
    again(lambda: writer.mode("overwrite" if replace else "append").save(path), pauses)


def again(call: Callable[[], Result], pauses: Sequence[float] = PAUSES) -> Result:
    """Call again, up to once for each of ``pauses``, after an error that may pass.

    That is a conflict, since Delta refuses one of two runs that commit to a table at the same time, and an answer of the store
    that broke off.
    """
    try:
        return call()
    except Exception as error:
        if not pauses or not (is_conflict(error) or _CUT.match(innermost(error))):
            raise
    time.sleep(random.uniform(0.5, 1) * pauses[0])
    return again(call, pauses[1:])
