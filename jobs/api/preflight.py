"""``preflight`` of the Python API.

By itself: the model of a broker's start takes a while to import, and only ``preflight`` needs it.
"""

from rocketmq_reindex.jobs.api import keywords as api_keywords, running
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import PreflightResult


@api_keywords.says_keywords
def preflight(
    store: api_keywords.PathLike | None = None,
    *,
    broker_version: str | None = None,
    abort: option.Abort | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    commitlog: api_keywords.Paths | None = None,
    segment_size: api_keywords.Size | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    count_limit: api_keywords.Size | None = None,
) -> PreflightResult:
    """Say what the start of a broker will do to a store, as ``rmq-reindex preflight`` does: no broker, no Spark, no writing.

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
    return api_keywords.result_of(
        running.run_preflight(lambda: preflight_settings(api_keywords.given("preflight", keywords)), quiet=True)
    )
