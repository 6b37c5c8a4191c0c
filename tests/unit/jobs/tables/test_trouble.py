"""One line for whatever Spark, Hadoop or Delta raises where no table can be made, and the right one."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.tables.making import reason

TRACE = (
    "\tat org.apache.spark.sql.delta.DeltaErrorsBase.cannotCreateLogPathException(DeltaErrors.scala:1955)\n"
    "\tat org.apache.spark.sql.delta.catalog.DeltaCatalog.createTable(DeltaCatalog.scala:1)\n"
    "\tSuppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace\n"
    "\t\tat org.apache.spark.sql.delta.catalog.DeltaCatalog.createTable(DeltaCatalog.scala:1)\n"
    "\t... 12 more"
)
"""Every error of a CREATE TABLE comes through Delta's catalog."""


def java(head: str, *causes: str) -> Exception:
    """As py4j tells an error of Java."""
    more = [f"Caused by: {cause}\n{TRACE}" for cause in causes]
    return Exception("\n".join([f"An error occurred while calling o1.sql.\n: {head}", TRACE, *more]))


@pytest.mark.parametrize("absent", [
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.\nmore",
    "Cannot find catalog plugin class for catalog 'spark_catalog': org.apache.spark.sql.delta.catalog.DeltaCatalog.",
    "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This Delta operation requires the SparkSession to be",
    "[PARSE_SYNTAX_ERROR] Syntax error at or near 'CLUSTER'.",
    "[CANNOT_CREATE_DATA_SOURCE_TABLE.EXTERNAL_METADATA_UNSUPPORTED] Failed to create data source table",
])  # fmt: skip
def test_a_session_without_delta(absent: str) -> None:
    assert reason(Exception(absent)).startswith("this Spark session has no Delta Lake: start it with Delta's package")


@pytest.mark.parametrize(("error", "told"), [
    (java("java.nio.file.AccessDeniedException: s3a://b/t: 403"), "java.nio.file.AccessDeniedException: s3a://b/t: 403"),
    (
        java("org.apache.spark.sql.delta.DeltaIOException: [DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/f/t/_delta_log",
             "org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is no directory"),
        "no folder can be made for it: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is no directory",
    ),
    (
        java("org.apache.spark.sql.delta.DeltaIOException: [DELTA_CANNOT_CREATE_LOG_PATH] Cannot create /t/_delta_log"),
        "no folder can be made for it: no permission, a read-only place, or a file in the way",
    ),
    (
        java("org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme \"nosuch\""),
        "this Spark session has no file system for nosuch://: start it with the package that has one",
    ),
    (
        java("org.apache.spark.SparkException: Task failed.", "java.io.IOException: No space left on device"),
        "org.apache.spark.SparkException: Task failed: java.io.IOException: No space left on device",
    ),
    (
        java("x.ConnectException: Call from a to b: y.ConnectException: refused", "y.ConnectException: refused"),
        "x.ConnectException: Call from a to b: y.ConnectException: refused",
    ),
    (
        java("java.io.IOException: localhost:1: Unexpected HTTP response: code=404",
             "java.lang.ClassNotFoundException: org.apache.hadoop.shaded.org.glassfish.jersey.internal.RuntimeDelegateImpl"),
        ("webhdfs:// does not work in the Hadoop of this Spark, as in Hadoop 3.5.0 of Spark 4.2: give the tables' place as "
         "hdfs://, or take Spark 4.1 (see docs/how-to/delta-tables.md)"),
    ),
    (Exception("one\ntwo\x1b[0m"), "one"),
    (ValueError(), "ValueError"),
])  # fmt: skip
def test_any_other_trouble(error: Exception, told: str) -> None:
    """Whatever classes of Delta stand in the trace."""
    assert reason(error) == told


@pytest.mark.parametrize(("lacking", "package"), [
    ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "hadoop-aws"),
    ("ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found", "hadoop-azure"),
    ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"', "gcs-connector"),
])  # fmt: skip
def test_a_session_without_a_file_system(lacking: str, package: str) -> None:
    for error in (java(lacking), java("java.lang.RuntimeException", lacking)):
        assert f"{package} (see docs/" in reason(error)
