"""What is wrong with the tables' place, in one line, from whatever Spark, Hadoop or Delta raised."""

from __future__ import annotations

import re
from typing import Final

from rocketmq_reindex.storage_format.names import escape

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
    if found := _SCHEME.search(text):
        return f"this Spark session has no file system for {found[1]}://: start it with the package that has one"
    if any(mark in text for mark in _NO_DELTA):
        return (
            f"this Spark session has no Delta Lake: start it with Delta's package and the two settings {_PAGE}, "
            "or leave out --tables"
        )
    told = (lines[0].removeprefix(": ") if lines else "") or type(error).__name__
    # The last cause is the one that a system named: no space left, permission denied.
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    if no_folder(told):
        why = causes[-1] if causes else "no permission, a read-only place, or a file in the way"
        return escape(f"no folder can be made for it: {why}", 400)
    if causes and causes[-1] not in told:
        told = f"{told.rstrip('.')}: {causes[-1]}"
    return escape(told, 400)


def no_folder(text: str) -> bool:
    """Return whether an error says that the folder of a table cannot be made."""
    return bool(_NO_FOLDER.search(text))
