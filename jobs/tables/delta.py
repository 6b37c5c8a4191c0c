"""Make Delta tables and add rows to them, so that the same call twice adds nothing twice.

Nothing of Delta's Python package is needed: SQL and DataFrames do, on any session that knows the format.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from rocketmq_reindex.jobs.command.tables_place import quoted
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.tables.schema import Column, Table

APPLICATION: Final = "rmq-reindex"
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""seconds at most, before it is tried again"""
_ABSENT: Final = (
    "DATA_SOURCE_NOT_FOUND",
    "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
    "DELTA_CONFIGURE_SPARK_SESSION",
    "DeltaCatalog",
    "ClassNotFoundException: delta",
    "PARSE_SYNTAX_ERROR",
    "CANNOT_CREATE_DATA_SOURCE_TABLE",
)
"""What Spark says in a session that was started without Delta: CLUSTER BY is then a syntax it cannot have."""

_LACKING: Final = {
    "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found": "org.apache.hadoop:hadoop-aws",
    "Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found": "org.apache.hadoop:hadoop-azure",
    'No FileSystem for scheme "gs"': "com.google.cloud.bigdataoss:gcs-connector",
}
"""What Hadoop says where it lacks a package"""
_SMALL_QUERIES: Final = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Java made and compiled for a query that runs once, over a handful of rows, is a fifth of the JVM's time with tables."""
_CALLING: Final = "An error occurred while calling "
"""How a message of py4j begins; the cause is on the next line"""

Result = TypeVar("Result")


def small_queries(spark: SparkSession) -> dict[str, str]:
    """Return settings for many queries of few rows each, unless the session has others."""
    return {name: value for name, value in _SMALL_QUERIES.items() if spark.conf.get(name, None) is None}


def create_statement(table: Table, path: str) -> str:
    """Return the statement that makes a table with all of its constraints in its first version."""
    columns = ",\n  ".join(_column(column) for column in table.columns)
    clustered = f"\nCLUSTER BY ({', '.join(table.clustered)})" if table.clustered else ""
    properties = ",\n  ".join(f"'delta.constraints.{name}' = {_literal(check)}" for name, check in table.checks.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(path)} (\n  {columns}\n) USING delta{clustered}\n"
        f"COMMENT {_literal(table.comment)}\nTBLPROPERTIES (\n  {properties}\n)"
    )


def _column(column: Column) -> str:
    return f"{column.name} {column.sql}{' NOT NULL' if column.required else ''} COMMENT {_literal(column.comment)}"


def _literal(text: str) -> str:
    """Text of our own in SQL: it has no backslash."""
    return "'" + text.replace("'", "\\'") + "'"


def ensure(spark: SparkSession, table: Table, path: str) -> None:
    """Make the table unless it is there. Raises InputError when a table there has other columns."""
    try:
        # CREATE IF NOT EXISTS would do, at three times the cost of a look.
        found = spark.read.format("delta").load(path).schema
    except Exception:  # noqa: BLE001  the next statement reports what is wrong
        _again(lambda: spark.sql(create_statement(table, path)))
        found = spark.read.format("delta").load(path).schema
    wanted = {column.name: column.sql.replace(" ", "").lower() for column in table.columns}
    have = {field.name: field.dataType.simpleString().replace(" ", "").lower() for field in found}
    if wanted != have:
        odd = sorted(name for name in wanted.keys() | have.keys() if wanted.get(name) != have.get(name))
        raise InputError(f"{escape(path)}: is a table with other columns ({escape(', '.join(odd))}): name another --tables")


def write(rows: DataFrame, path: str, build: str, run: str, step: int, *, replace: bool = False) -> None:
    """Add the rows of one run of a build, or with ``replace`` replace all rows of that build.

    Delta keeps (application, version) of what was committed, so that the same ``step`` of the same run is passed over. It keeps
    them for ever, also when the rows are deleted: no other run may have the name ``run``, its rows would be passed over, too.
    """
    writer = rows.write.format("delta").option("txnAppId", f"{APPLICATION}/{run}").option("txnVersion", step)
    if replace:
        # The id has no quotes (BuildSettings.check).
        writer = writer.option("replaceWhere", f"build = '{build}'")
    _again(lambda: writer.mode("overwrite" if replace else "append").save(path))


def _again(call: Callable[[], Result], pauses: Sequence[float] = _PAUSES) -> Result:
    """Call again after a conflict: when two runs commit to a table at the same time, Delta refuses one of them."""
    try:
        return call()
    except Exception as error:
        if not pauses or not _is_conflict(error):
            raise
    time.sleep(random.uniform(0.5, 1) * pauses[0])
    return _again(call, pauses[1:])


def _is_conflict(error: Exception) -> bool:
    return "DELTA_CONCURRENT" in str(error) or "Concurrent" in type(error).__name__


def reason(error: Exception) -> str:
    """Return one line for whatever Spark or Delta raised."""
    text = str(error).strip()
    for mark, package in _LACKING.items():
        if mark in text:
            return f"this Spark session has no file system for it: start it with {package} (see docs/how-to/delta-tables.md)"
    if any(mark in text for mark in _ABSENT):
        return (
            "this Spark session has no Delta Lake: start it with Delta's package and the two settings "
            "(see docs/how-to/delta-tables.md), or leave out --tables"
        )
    lines = [line for line in text.splitlines() if not line.startswith(_CALLING)]
    return escape(lines[0].removeprefix(": ") if lines else type(error).__name__, 400)
