"""``info`` of the Python API."""

from __future__ import annotations

from rocketmq_reindex.jobs.api.ending import result_of
from rocketmq_reindex.jobs.api.info_result import InfoResult
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Paths, given
from rocketmq_reindex.jobs.api.run_info import run_info
from rocketmq_reindex.jobs.describing.options import build_parser, info_settings


@says_keywords
def info(store: PathLike, *, commitlog: Paths | None = None) -> InfoResult:
    """Say what is in a store, what is missing or stale, and what to run next, as ``rmq-reindex info`` does.

    No file is read whole: counts come from the ends of files, and from a sample of the log where queues have no files.

    Args:
        store: The broker's store (``storePathRootDir``), a folder or URI.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.

    Returns:
        What is known of the store. In a notebook it is shown as a table.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: ``store`` is no store, or cannot be read (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.info("store")
        >>> found.log["segments"], found.log["end_offset"]
        (5, 4529583)
    """
    keywords = dict(locals())
    return result_of(InfoResult, run_info(lambda: info_settings(given(build_parser(), keywords))))
