"""Failures of query, inspect and report as errors of the package, for the command line and for the Python API.

By itself: query and inspect start without what ``ended`` imports.
"""

import contextlib
from collections.abc import Iterator

from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.names import escape


@contextlib.contextmanager
def failures_as_errors(place: str) -> Iterator[None]:
    """Raises InputError for what cannot be read or written. ``place`` stands for a file without a name.

    A pipe that is closed while a command prints is no failure of a file: BrokenPipeError passes.
    """
    try:
        yield
    except (ReindexError, BrokenPipeError):
        raise
    except (OSError, ValueError) as error:
        # ValueError: bytes that are no file of this kind, or a URI that pyarrow does not know.
        where = getattr(error, "filename", None)
        raise InputError(f"{escape(str(where)) if where else escape(place)}: {reason(error)}") from error
