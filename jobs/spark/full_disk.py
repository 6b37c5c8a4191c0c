"""A disk that Spark itself fills: its error names no folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

_FULL: Final = "java.io.IOException: No space left on device"
_OWN: Final = re.compile(r"\bat org\.apache\.spark\.(storage|shuffle|broadcast|util\.collection)\.")
"""what writes to Spark's own folders: kept rows, shuffles, broadcasts"""
_HOST: Final = re.compile(r"\((\S+) executor \S+\): java\.io\.IOException")


@contextlib.contextmanager
def named(spark: Any) -> Iterator[None]:
    """Raise InputError with the folder where Spark's own folder was full."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if _FULL not in text or not _OWN.search(text):
            raise
        raise InputError(
            f"{_where(spark, text)}: No space left on device: Spark keeps there what it shuffles: free some, or name another "
            "folder, SPARK_LOCAL_DIRS or spark.local.dir: nothing was published"
        ) from error


def _where(spark: Any, text: str) -> str:
    """Returns the folder; of several the one with the least room. On a cluster, the host."""
    with contextlib.suppress(Exception):
        context = spark.sparkContext
        if not str(context.master).startswith("local"):
            found = _HOST.search(text)
            return f"Spark's own folder on {escape(found[1])}" if found else "Spark's own folder on an executor"
        utils = context._jvm.org.apache.spark.util.Utils
        return escape(min(map(str, utils.getConfiguredLocalDirs(context._jsc.sc().conf())), key=_free))
    return "Spark's own folder"


def _free(folder: str) -> int:
    try:
        looked = os.statvfs(folder)
    except OSError:
        return 0
    return looked.f_bavail * looked.f_frsize
