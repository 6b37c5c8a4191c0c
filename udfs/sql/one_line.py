"""Errors of the data sources without Python's stack: Spark shows the user what a worker writes about an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex.storage_format.errors import ReindexError

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Spark's worker looks at it when it has caught an error (``pyspark.util.handle_worker_exception``), and then ends."""
_OF_WORKERS: Final = "SPARK_BUFFER_SIZE"
"""Spark sets it for its workers alone."""


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Let an error that says all by itself pass without its stack. In a process that is no worker of Spark, do nothing."""
    try:
        yield
    except (ReindexError, OSError):
        if _OF_WORKERS in os.environ:
            os.environ[HIDE] = "1"
        raise
