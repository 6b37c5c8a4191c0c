"""Make the Delta tables that are not there, and add the columns that a newer version has.

Two processes may do so at once: one of them finds what the other has made.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rocketmq_reindex.jobs.command.tables_place import quoted
from rocketmq_reindex.jobs.tables.trouble import no_folder
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.tables.schema import Column, Table

_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)
"""seconds at most, before it is looked at again"""
_ABSENT: Final = ("PATH_NOT_FOUND", "TABLE_NOT_FOUND", "NOT_EXIST", "MISSING_DELTA_TABLE", "FileNotFoundException")
"""what Spark and Delta call a table that is not there"""
_RACES: Final = (
    "ALREADY_EXISTS", "NON_EMPTY_LOCATION", "TABLE_NOT_FOUND",
    "DELTA_DUPLICATE_COLUMNS_FOUND", "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
)  # fmt: skip
"""what they call it where another process makes the table or adds the columns, before this one's statement or while it runs"""
_LOCAL: Final = "file:"
_STAGED: Final = "_staged_commits"
"""an empty folder that Delta makes in the log of a table"""
_ABANDONED: Final = 60.0
"""seconds after which a log without any version is one that no process goes on with"""


def create_statement(table: Table, path: str) -> str:
    """Return the statement that makes a table with all of its constraints in its first version.

    Not with IF NOT EXISTS: Delta then takes any folder that holds something for a table, and makes none.
    """
    columns = ",\n  ".join(_column(column) for column in table.columns)
    clustered = f"\nCLUSTER BY ({', '.join(table.clustered)})" if table.clustered else ""
    properties = ",\n  ".join(f"'delta.constraints.{name}' = {literal(check)}" for name, check in table.checks.items())
    return (
        f"CREATE TABLE {quoted(path)} (\n  {columns}\n) USING delta{clustered}\n"
        f"COMMENT {literal(table.comment)}\nTBLPROPERTIES (\n  {properties}\n)"
    )


def _column(column: Column) -> str:
    return f"{column.name} {column.sql}{' NOT NULL' if column.required else ''} COMMENT {literal(column.comment)}"


def literal(text: str) -> str:
    """Return text of our own in SQL: it has no backslash."""
    return "'" + text.replace("'", "\\'") + "'"


def ensure(spark: SparkSession, table: Table, path: str) -> None:
    """Make the table unless it is there. Raises InputError when something else is there, or a table with other columns."""
    for pause in (*_PAUSES, None):
        if pause is None:
            _remove_empty_log(path)
        found, absent = _look(spark, path)
        try:
            if found is None:
                spark.sql(create_statement(table, path))
            elif lacking := _lacking(table, path, found):
                added = ", ".join(_column(column) for column in lacking)
                spark.sql(f"ALTER TABLE {quoted(path)} ADD COLUMNS ({added})")
            return
        except InputError:
            raise
        except Exception as error:
            if not _is_race(error):
                raise _named(path, error) from error
            if absent is not None and not any(mark in str(absent) for mark in _ABSENT):
                # A table is there, and cannot be read.
                raise absent from None
            if pause is None and is_conflict(error):
                raise
            if pause is None:
                what = "is there and no Delta table: move it away, or name another --tables"
                raise InputError(f"{escape(path)}: {what}") from error
            time.sleep(random.uniform(0.5, 1) * pause)


def _look(spark: SparkSession, path: str) -> tuple[StructType | None, Exception | None]:
    """Returns the columns of the table, or why there are none. A look costs a third of a statement that does nothing."""
    try:
        return spark.read.format("delta").load(path).schema, None
    except Exception as error:  # noqa: BLE001  the next statement tells what is wrong
        return None, error


def _remove_empty_log(path: str) -> None:
    """Remove the log of a local table that has no version: a process that made it was killed, and no statement of SQL does.

    Not a new one: the process that makes it may be slow.
    """
    log = f"{path.removeprefix(_LOCAL)}/_delta_log"
    with contextlib.suppress(OSError):
        old = path.startswith(_LOCAL) and time.time() - os.stat(log).st_mtime > _ABANDONED
        if old and set(os.listdir(log)) <= {_STAGED}:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{log}/{_STAGED}")
            os.rmdir(log)


def _lacking(table: Table, path: str, found: StructType) -> list[Column]:
    """Returns the columns to be added, which may be null. Raises InputError when others differ."""
    wanted = {column.name: column.sql.replace(" ", "").lower() for column in table.columns}
    have = {field.name: field.dataType.simpleString().replace(" ", "").lower() for field in found}
    lacking = [column for column in table.columns if column.name not in have and not column.required]
    odd = {name for name in wanted.keys() | have.keys() if wanted.get(name) != have.get(name)}
    if odd := odd - {column.name for column in lacking}:
        names = escape(", ".join(sorted(odd)))
        raise InputError(f"{escape(path)}: is a table with other columns ({names}): name another --tables")
    return lacking


def _is_race(error: Exception) -> bool:
    """Whether another process may be making the table, or adding the columns, at this moment."""
    text = str(error)
    return is_conflict(error) or any(mark in text for mark in _RACES)


def is_conflict(error: Exception) -> bool:
    """Return whether Delta refused a commit because of another one at the same time."""
    marks = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
    return any(mark in str(error) for mark in marks) or "Concurrent" in type(error).__name__


def _named(path: str, error: Exception) -> Exception:
    """Returns the system's own word for a local folder that cannot be made, where there is one."""
    if not path.startswith(_LOCAL) or not no_folder(str(error)):
        return error
    try:
        os.makedirs(path.removeprefix(_LOCAL), exist_ok=True)
    except OSError as named:
        return InputError(f"{escape(path.removeprefix(_LOCAL))}: {named.strerror}: name another --tables")
    return error
