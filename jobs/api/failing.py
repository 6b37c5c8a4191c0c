"""Failures of what runs in this process, as errors of the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.names import escape


@contextlib.contextmanager
def failures_as_errors(place: str) -> Iterator[None]:
    """Raises InputError for what cannot be read or written. ``place`` stands for a file without a name."""
    try:
        yield
    except ReindexError:
        raise
    except (OSError, ValueError) as error:
        # ValueError: bytes that are no file of this kind, or a URI that pyarrow does not know.
        where = getattr(error, "filename", None)
        raise InputError(f"{escape(str(where)) if where else escape(place)}: {reason(error)}") from error
