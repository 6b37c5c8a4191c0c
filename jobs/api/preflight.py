"""``preflight`` of the Python API."""

from __future__ import annotations

from typing import Literal

from rocketmq_reindex.jobs.api.ending import result_of
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Paths, Size, given
from rocketmq_reindex.jobs.api.preflight_result import PreflightResult
from rocketmq_reindex.jobs.api.run_preflight import run_preflight
from rocketmq_reindex.jobs.preflighting.options import build_parser, preflight_settings


@says_keywords
def preflight(
    store: PathLike | None = None,
    *,
    broker_version: str | None = None,
    abort: Literal["yes", "no"] | None = None,
    broker_conf: PathLike | None = None,
    commitlog: Paths | None = None,
    segment_size: Size | None = None,
    cq_file_size: Size | None = None,
    batch_cq_file_size: Size | None = None,
    hash_slots: Size | None = None,
    index_items: Size | None = None,
    count_limit: Size | None = None,
) -> PreflightResult:
    """Say what the start of a broker will do to a store, as ``rmq-reindex preflight`` does: no broker, no Spark, no writing.

    Args:
        store: The broker's store (``storePathRootDir``), a local folder.
        broker_version: A release of RocketMQ, or a line for its newest release. Default: ``5.5``.
        abort: As if the last stop was unclean, or clean. Default: by the store's file ``abort``.
        broker_conf: A ``broker.conf``, for sizes, folders and settings of the start. Keywords win.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.
        segment_size: Bytes of a whole segment. Default: taken from the files.
        cq_file_size: Bytes of a ConsumeQueue file. Default: taken from the files.
        batch_cq_file_size: Bytes of a batch ConsumeQueue file. Default: taken from the files.
        hash_slots: Number of slots of an IndexFile. Default: taken from the files.
        index_items: Number of items of an IndexFile. Default: taken from the files.
        count_limit: Bytes of the log that are read at most only to count what is lost. Default: 4294967296.

    Returns:
        All that the start does. Its ``exit_status`` is 0 where it loses nothing, and 4 where it loses or hides something or
        does not come about.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: The store cannot be read, changes while it is read, or belongs to a broker that ``preflight`` does not
            know (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.preflight("store", broker_version="5.3.3")
        >>> found.loads, found.exit_status
        (True, 0)
    """
    keywords = dict(locals())
    return result_of(PreflightResult, run_preflight(lambda: preflight_settings(given(build_parser(), keywords)), quiet=True))
