"""Keep a Python worker of Spark from repeating work for each task.

By itself: a worker of Spark imports it for each task, and no engine.
"""

import gc
import os
import zipimport
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function over the Arrow batches of one task, as ``mapInArrow`` takes it."""


def run(function: Batches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run ``function`` over the batches of a task. Return the batches that it makes."""
    settle()
    return function(iter(batches))


def settle() -> None:
    """Spare this process, and its forks, what Spark's worker and daemon repeat for each task. A second call does nothing."""
    if _keep_zip_directories():
        gc.collect()
        # The daemon's worker collects garbage after each task, among all that was ever imported: 0.1 s.
        gc.freeze()


def _keep_zip_directories() -> bool:
    """Make importers read the directory of a zip again only when the zip has changed.

    Before each task Spark's worker (``setup_spark_files``) invalidates the caches of all importers. There are about 16 for
    pyspark.zip, py4j's zip and Spark's own jar, and each would read a whole directory in Python: 0.25 s for each task.
    Returns False where that was done before.
    """
    forget = zipimport.zipimporter.invalidate_caches
    if getattr(forget, "keeps_directories", False):
        return False

    def invalidate_caches(self: Any) -> None:
        state = _state_of(self.archive)
        if state is None or getattr(self, "state_of_archive", None) != state:
            forget(self)
            self.state_of_archive = state

    invalidate_caches.keeps_directories = True  # type: ignore[attr-defined]
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
    return True


def _state_of(archive: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(archive)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
