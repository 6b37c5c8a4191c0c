"""Keep a Python worker of Spark from repeating work for each task.

By itself: a worker of Spark imports it for each task, and no engine.
"""

import os
import zipimport
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function over the Arrow batches of one task, as ``mapInArrow`` takes it."""


def run(function: Batches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run ``function`` over the batches of a task; return the batches that it makes."""
    keep_zip_directories()
    return function(iter(batches))


def keep_zip_directories() -> None:
    """Make importers read the directory of a zip again only when the zip has changed.

    Before each task Spark's worker (``setup_spark_files``) invalidates the caches of all importers. There are about 16 for
    pyspark.zip, py4j's zip and Spark's own jar, and each would read a whole directory in Python: 0.25 s for each task.
    """
    forget = zipimport.zipimporter.invalidate_caches
    if getattr(forget, "keeps_directories", False):
        return

    def invalidate_caches(self: Any) -> None:
        try:
            status = os.stat(self.archive)
        except OSError:
            forget(self)
            return
        state = status.st_ino, status.st_size, status.st_mtime_ns
        if getattr(self, "state_of_archive", None) != state:
            forget(self)
            self.state_of_archive = state

    invalidate_caches.keeps_directories = True  # type: ignore[attr-defined]
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
