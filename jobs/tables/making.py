"""Make the recorder of a run, and its Delta tables: how Hadoop reaches their place, and what is wrong with it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command.tables_place import quoted
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.table_schema import Column, Table

if TYPE_CHECKING:
    # A build asks here for the user of Hadoop before it knows whether it needs Spark.
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rocketmq_reindex.jobs.building.options import BuildSettings
    from rocketmq_reindex.jobs.building.run import Unrecorded
    from rocketmq_reindex.jobs.building.summary import BuildResult
    from rocketmq_reindex.jobs.engines.engine import Engine
    from rocketmq_reindex.jobs.watching.progress import Reporter
    from rocketmq_reindex.udfs.scan.segments import Commitlog


def recorder_of(settings: BuildSettings, result: BuildResult, reporter: Reporter, engine: Engine, log: Commitlog) -> Unrecorded:
    """Return what records a run in the Delta tables of ``--tables``, or what records nothing.

    Only a run with ``--tables`` imports what writes its rows.
    """
    from rocketmq_reindex.jobs.building.run import Unrecorded

    if not settings.tables:
        return Unrecorded()
    from rocketmq_reindex.jobs.spark.engine import SparkEngine
    from rocketmq_reindex.jobs.tables.recorder import Recorder

    return Recorder(settings, result, reporter, engine, log) if isinstance(engine, SparkEngine) else Unrecorded()


# ----------------------------------------------------------------------------------------------------------------------- hadoop
# Settings with which Spark's Hadoop reaches the tables as ``files`` reaches the files beside them.

_SIMPLE: Final = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_PROFILE: Final = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"


def hadoop_settings(place: str) -> dict[str, str]:
    """Return settings of a session for writing tables at ``place``. They may hold secrets: never show them.

    Keys in the environment are not among them: Spark takes these over by itself.
    """
    if not files.is_remote(place) or not files.is_known(place):
        return {}
    uri = files.split(place)
    if uri.scheme == "s3":
        return _s3a(uri)
    user, _, host = uri.authority.rpartition("@")
    key = user.partition(":")[2]
    return {f"fs.azure.account.key.{host}": unquote(key)} if key and uri.scheme in ("abfss", "abfs") else {}


def _s3a(uri: files.Uri) -> dict[str, str]:
    user, _, bucket = uri.authority.rpartition("@")
    access, _, secret = user.partition(":")
    options = files.s3_options(uri)
    scheme, settings = options.get("scheme", "https"), dict[str, str]()
    if "scheme" in options:
        settings["connection.ssl.enabled"] = str(scheme != "http").lower()
    if "endpoint_override" in options:
        own_hosts = options.get("force_virtual_addressing", "").lower() in ("1", "true")
        settings["endpoint"] = f"{scheme}://{options['endpoint_override']}"
        settings["path.style.access"] = str(not own_hosts).lower()
    if "region" in options:
        settings["endpoint.region"] = options["region"]
    if user:
        # Alone: with a session token of the environment, that belongs to another key, they would be refused.
        settings |= {"access.key": unquote(access), "secret.key": unquote(secret), "aws.credentials.provider": _SIMPLE}
    elif os.environ.get("AWS_PROFILE") and not os.environ.get("AWS_ACCESS_KEY_ID"):
        settings["aws.credentials.provider"] = _PROFILE
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}


def hdfs_user(place: str) -> str:
    """Return the user who writes tables in an HDFS; "" when the URI names none. Raises InputError for what is no user's name.

    Hadoop knows a user for the whole process: as its JVM starts, by HADOOP_USER_NAME.
    """
    if not files.is_remote(place) or not files.is_known(place):
        return ""
    uri = files.split(place)
    if uri.scheme not in ("hdfs", "webhdfs", "swebhdfs"):
        return ""
    name, at, _ = uri.authority.rpartition("@")
    user = unquote(name.partition(":")[0]) if at else files.option(uri, "user")
    if not re.fullmatch(r"[^\s\"'\\]*", user):
        raise InputError(f"--tables {escape(place)}: {escape(user)} is no user's name")
    return user


# ---------------------------------------------------------------------------------------------------------------------- reasons
# What is wrong with the tables' place, in one line, from whatever Spark, Hadoop or Delta raised.

_PAGE: Final = "(see docs/how-to/delta-tables.md)"
_NO_DELTA: Final = (
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
_NO_WEBHDFS: Final = "org.apache.hadoop.shaded.org.glassfish.jersey.internal.RuntimeDelegateImpl"
"""a class that hadoop-client-runtime 3.5.0 names and does not have: its webhdfs:// can read no answer"""
_SCHEME: Final = re.compile(r'No FileSystem for scheme "?([A-Za-z0-9+.-]+)')
_CALLING: Final = "An error occurred while calling "
"""How a message of py4j begins; the cause is on the next line"""
_CAUSE: Final = "Caused by: "
_FRAME: Final = re.compile(r"\s+at \S|\s*\.\.\. \d+ more|\s*Suppressed: ")
"""Lines of a Java trace: classes are named there, of Delta for one, that have nothing to do with what is wrong."""
_NO_FOLDER: Final = re.compile(r"DELTA_CANNOT_CREATE_LOG_PATH|Mkdirs failed|mkdir of ")


def reason(error: Exception) -> str:
    """Return one line for whatever Spark or Delta raised."""
    lines = [line for line in str(error).strip().splitlines() if not _FRAME.match(line) and not line.startswith(_CALLING)]
    text = "\n".join(lines)
    for mark, package in _LACKING.items():
        if mark in text:
            return f"this Spark session has no file system for it: start it with {package} {_PAGE}"
    if scheme := _SCHEME.search(text):
        return f"this Spark session has no file system for {scheme[1]}://: start it with the package that has one"
    if _NO_WEBHDFS in text:
        return (
            "webhdfs:// does not work in the Hadoop of this Spark, as in Hadoop 3.5.0 of Spark 4.2: give the tables' place as "
            f"hdfs://, or take Spark 4.1 {_PAGE}"
        )
    if any(mark in text for mark in _NO_DELTA):
        return (
            f"this Spark session has no Delta Lake: start it with Delta's package and the two settings {_PAGE}, "
            "or leave out --tables"
        )
    cause = (lines[0].removeprefix(": ") if lines else "") or type(error).__name__
    # The last cause is the one that a system named: no space left, permission denied.
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    if no_folder(cause):
        why = causes[-1] if causes else "no permission, a read-only place, or a file in the way"
        return escape(f"no folder can be made for it: {why}", 400)
    if causes and causes[-1] not in cause:
        cause = f"{cause.rstrip('.')}: {causes[-1]}"
    return escape(cause, 400)


def no_folder(text: str) -> bool:
    """Return whether an error says that the folder of a table cannot be made."""
    return bool(_NO_FOLDER.search(text))


# ----------------------------------------------------------------------------------------------------------------------- making
# Make the Delta tables that are not there, and add the columns that a newer version has.
#
# Two processes may do so at once: one of them finds what the other has made.

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
        columns, absent = _look(spark, path)
        try:
            if columns is None:
                spark.sql(create_statement(table, path))
            elif lacking := _lacking(table, path, columns):
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
                fault = "is there and no Delta table: move it away, or name another --tables"
                raise InputError(f"{escape(path)}: {fault}") from error
            time.sleep(random.uniform(0.5, 1) * pause)


def _look(spark: SparkSession, path: str) -> tuple[StructType | None, Exception | None]:
    """Return the columns of the table, or why there are none. A look costs a third of a statement that does nothing."""
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


def _lacking(table: Table, path: str, columns: StructType) -> list[Column]:
    """Return the columns to be added, which may be null. Raises InputError when others differ."""
    types_wanted = {column.name: column.sql.replace(" ", "").lower() for column in table.columns}
    have = {field.name: field.dataType.simpleString().replace(" ", "").lower() for field in columns}
    lacking = [column for column in table.columns if column.name not in have and not column.required]
    odd = {name for name in types_wanted.keys() | have.keys() if types_wanted.get(name) != have.get(name)}
    if odd := odd - {column.name for column in lacking}:
        names = escape(", ".join(sorted(odd)))
        raise InputError(f"{escape(path)}: is a table with other columns ({names}): name another --tables")
    return lacking


def _is_race(error: Exception) -> bool:
    """Return whether another process may be making the table, or adding the columns, at this moment."""
    text = str(error)
    return is_conflict(error) or any(mark in text for mark in _RACES)


def is_conflict(error: Exception) -> bool:
    """Return whether Delta refused a commit because of another one at the same time."""
    marks = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
    return any(mark in str(error) for mark in marks) or "Concurrent" in type(error).__name__


def _named(path: str, error: Exception) -> Exception:
    """Return the system's own word for a local folder that cannot be made, where there is one."""
    if not path.startswith(_LOCAL) or not no_folder(str(error)):
        return error
    try:
        os.makedirs(path.removeprefix(_LOCAL), exist_ok=True)
    except OSError as named:
        return InputError(f"{escape(path.removeprefix(_LOCAL))}: {named.strerror}: name another --tables")
    return error
