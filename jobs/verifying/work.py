"""The folder for what the stages of a verify hand on to each other."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder


@contextlib.contextmanager
def work_folder(place: str) -> Iterator[StagingFolder]:
    """Make a folder for this run alone; it is removed whatever happens. Raises InputError where none can be made."""
    place = files.checked(place)
    if files.is_remote(place):
        folder = files.join(place, f"rmq-reindex-verify-{uuid.uuid4().hex}")
    elif place and not os.path.isdir(place):
        raise InputError(f"--work {escape(place)}: is not a folder: make it first")
    elif not place and not _is_local():
        raise InputError("--work: the executors may be on other machines: name a folder that all of them share")
    else:
        folder = tempfile.mkdtemp(prefix="rmq-reindex-verify-", dir=os.path.abspath(place) if place else None)
    try:
        staging = StagingFolder(folder)
        staging.make()
        yield staging
    finally:
        files.remove_tree(folder)


def _is_local() -> bool:
    """Whether the session's executors are on this machine, as far as it says."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return context is None or str(context.master).startswith("local")
