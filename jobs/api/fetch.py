"""``fetch`` of the Python API.

By itself: who fetches in Python imports no engine.
"""

from rocketmq_reindex.jobs.api import keywords as api_keywords, results, run_fetch as api_run_fetch
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.fetching.options import fetch_settings


@api_keywords.says_keywords
def fetch(
    build: api_keywords.PathLike,
    *,
    to: api_keywords.PathLike,
    topics: bool = False,
    threads: api_keywords.Size | None = None,
    keep: api_keywords.Size | None = None,
    commitlog: api_keywords.Paths | None = None,
    partial: bool = False,
    allow_empty: bool = False,
    other_log: bool = False,
    dry_run: bool = False,
) -> results.FetchResult:
    """Lay a build out in a broker's store, as ``rmq-reindex fetch`` does: check every file, then swap the parts in.

    No broker may run on the store. The store's own parts are kept as ``PART.previous``. Nothing is printed. A fetch that was
    interrupted is finished by calling this again. A build that the store already holds is not fetched again.

    Returns:
        What was fetched and swapped. Its ``exit_status`` is 0.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: A store, or a build, that cannot be used (exit status 1). The store is as it was.
        ReindexError: Any other failure (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.fetch("rebuilt", to="store", dry_run=True).files
        27
        >>> done = rr.fetch("rebuilt", to="store")
        >>> done.swapped
        ['consumequeue', 'index', 'checkpoint']
    """
    keywords = dict(locals())
    return api_keywords.result_of(
        results.FetchResult,
        api_run_fetch.run_fetch(lambda: fetch_settings(api_keywords.given("fetch", keywords)), Interrupts(install=False)),
    )
