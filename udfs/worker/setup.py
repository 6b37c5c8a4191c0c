"""What a Python worker of Spark need not do again for every task."""

from __future__ import annotations

import os
import zipimport
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run(function: Batches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``function`` over the batches of a task."""
    keep_zip_directories()
    return function(iter(batches))


def keep_zip_directories() -> None:
    """Let importers read a zip's directory again only when the zip has changed.

    Before each task Spark's worker (``setup_spark_files``) has all importers forget what they know. There are about 16 for
    pyspark.zip, py4j's zip and Spark's own jar, and each then reads a whole directory in Python: 0.25 s a task.
    """
    forget = zipimport.zipimporter.invalidate_caches
    if getattr(forget, "keeps_directories", False):
        return

    def invalidate_caches(self: Any) -> None:
        try:
            found = os.stat(self.archive)
        except OSError:
            forget(self)
            return
        state = found.st_ino, found.st_size, found.st_mtime_ns
        if getattr(self, "state_of_archive", None) != state:
            forget(self)
            self.state_of_archive = state

    invalidate_caches.keeps_directories = True  # type: ignore[attr-defined]
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
