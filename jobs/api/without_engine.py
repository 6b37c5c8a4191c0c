"""The functions of the Python API without an engine, from ``info`` to ``replay``.

Each imports what it needs once it is called: the model of a broker's start takes a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketmq_reindex.jobs.api import keywords as api_keywords, running_here
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.command.results import Interrupts

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.consumers.standing import ConsumersResult
    from rocketmq_reindex.jobs.describing.look import InfoResult
    from rocketmq_reindex.jobs.fetching.run import FetchResult
    from rocketmq_reindex.jobs.importing.run import ImportResult
    from rocketmq_reindex.jobs.preflighting.run import PreflightResult
    from rocketmq_reindex.jobs.replaying.options import ReplayResult
    from rocketmq_reindex.jobs.reporting.make import ReportResult
    from rocketmq_reindex.jobs.tracing.timeline import TraceResult


@api_keywords.says_keywords
def info(store: api_keywords.PathLike, *, commitlog: api_keywords.Paths | None = None) -> InfoResult:
    """Say what is in a store, what is missing or stale, and what to run next, as ``rmq-reindex info`` does.

    No file is read whole: counts come from the ends of files, and from a sample of the log where queues have no files.

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
    from rocketmq_reindex.jobs.describing.look import info_settings

    return api_keywords.result_of(running_here.run_info(lambda: info_settings(api_keywords.given("info", keywords))))


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
    from rocketmq_reindex.jobs.preflighting.options import preflight_settings

    return api_keywords.result_of(
        running_here.run_preflight(lambda: preflight_settings(api_keywords.given("preflight", keywords)), quiet=True)
    )


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
) -> FetchResult:
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
    from rocketmq_reindex.jobs.fetching.run import fetch_settings

    return api_keywords.result_of(
        running_here.run_fetch(lambda: fetch_settings(api_keywords.given("fetch", keywords)), Interrupts(install=False))
    )


@api_keywords.says_keywords
def report(
    source: api_keywords.PathLike,
    *,
    out: api_keywords.PathLike | None = None,
    store: api_keywords.PathLike | None = None,
    summary: api_keywords.PathLike | None = None,
) -> ReportResult:
    """Write one HTML page about a build or a verify, as ``rmq-reindex report`` does. The page is complete in itself.

    This needs matplotlib: ``pip install matplotlib`` brings it.

    Returns:
        The file, and its size in bytes.

    Raises:
        InputError: The source is neither a build nor the file of a verify, or matplotlib is not installed (exit status 1).
        UsageError: A keyword has a value that is not possible (exit status 2).
        ReindexError: Any other failure (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.report("rebuilt", out="page.html", store="store").out
        'page.html'
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.reporting.make import report_settings

    return api_keywords.result_of(running_here.run_report(lambda: report_settings(api_keywords.given("report", keywords))))


@api_keywords.says_keywords
def trace(
    store: api_keywords.Paths,
    *,
    topic: str | None = None,
    key: str | None = None,
    id: str | None = None,  # noqa: A002  the option's name
    unique_key: str | None = None,
    queue: api_keywords.Size | None = None,
    queue_offset: api_keywords.Size | None = None,
    physical: api_keywords.Size | None = None,
    max: api_keywords.Size | None = None,  # noqa: A002  the option's name
    html: api_keywords.PathLike | None = None,
    scan: bool = False,
    commitlog: api_keywords.Paths | None = None,
    delay_levels: str | None = None,
) -> TraceResult:
    """Say what happened to a message, as ``rmq-reindex trace`` does: all that stores hold of it, as a timeline.

    Ask by one of ``key``, ``id``, ``unique_key``, ``queue`` with ``queue_offset``, and ``physical``.

    Returns:
        The messages, each with its events. Its ``exit_status`` is 0, or 4 where no store has the message.

    Raises:
        UsageError: The keywords do not make one question (exit status 2).
        InputError: A store cannot be read, or has no index and ``scan`` is not given; or nothing was found, and some of the
            stores could not be read (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.trace("store", topic="TopicA", queue=1, queue_offset=3)
        >>> [event.what for event in found[0].events]
        ['born', 'stored']
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.tracing.timeline import trace_settings

    return api_keywords.result_of(
        running_here.run_trace(lambda: trace_settings(api_keywords.given("trace", keywords)), quiet=True)
    )


@api_keywords.says_keywords
def consumers(
    store: api_keywords.PathLike,
    *,
    topic: str | None = None,
    group: str | None = None,
    consumer_offsets: api_keywords.Paths | None = None,
    merge: option.Merge | None = None,
    bounds: bool = False,
    to_time: api_keywords.Time | None = None,
    out: api_keywords.PathLike | None = None,
    commitlog: api_keywords.Paths | None = None,
) -> ConsumersResult:
    """Say where consumer groups stand in a store, as ``rmq-reindex consumers`` does, or write a new file of offsets.

    Returns:
        A row for each queue of each group. Its ``exit_status`` is 0, or 4 where no group was found, or where one stands where
        it misses messages and no new file is written.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: The store, or a file of offsets, cannot be read, or the new file is there already (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> import pathlib
        >>> saved = pathlib.Path("offsets.json").write_text('{"offsetTable": {"TopicA@billing": {"0": 20}}}')
        >>> found = rr.consumers("store", consumer_offsets="offsets.json")
        >>> found[0].group, found[0].offset, found[0].left
        ('billing', 20, 115)
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.consumers.standing import consumers_settings

    return api_keywords.result_of(
        running_here.run_consumers(lambda: consumers_settings(api_keywords.given("consumers", keywords)), quiet=True)
    )


@api_keywords.says_keywords
def import_messages(
    source: api_keywords.PathLike,
    *,
    to: api_keywords.PathLike,
    segment_size: api_keywords.Size | None = None,
    broker_version: str | None = None,
    allow_empty: bool = False,
) -> ImportResult:
    """Make a store that a broker starts on, of rows as ``export`` writes them. Nothing is printed.

    Returns:
        What was written. Its ``exit_status`` is 0.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: ``source`` is no export, a row is none that a broker takes, or ``to`` is there already (exit status 1).
            Nothing is written.
        ReindexError: Any other failure (exit status 1). Nothing is written.

    Example:
        >>> import rocketmq_reindex as rr
        >>> done = rr.export("store", topic="TopicA", to="rows.jsonl")
        >>> rr.import_messages("rows.jsonl", to="imported").messages
        522
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.importing.run import import_settings

    return api_keywords.result_of(
        running_here.run_import(
            lambda: import_settings(api_keywords.given("import", keywords)), Interrupts(install=False), quiet=True
        )
    )


@api_keywords.says_keywords
def replay(
    store: api_keywords.PathLike | None = None,
    *,
    to: str | None = None,
    journal: api_keywords.PathLike | None = None,
    topic: str | Sequence[str] | None = None,
    queue: api_keywords.Size | None = None,
    begin_offset: api_keywords.Size | None = None,
    end_offset: api_keywords.Size | None = None,
    since: api_keywords.Time | None = None,
    until: api_keywords.Time | None = None,
    key: str | Sequence[str] | None = None,
    tag: str | Sequence[str] | None = None,
    sql: str | None = None,
    text: str | None = None,
    regex: str | None = None,
    dlq: str | None = None,
    unconsumed_by: str | None = None,
    consumer_offsets: api_keywords.Paths | None = None,
    topic_map: str | Sequence[str] | None = None,
    queue_groups: bool = False,
    rate: float | None = None,
    resend_doubtful: bool = False,
    dry_run: bool = False,
    body_max: api_keywords.Size | None = None,
    credentials: api_keywords.PathLike | None = None,
    tls: bool = False,
    commitlog: api_keywords.Paths | None = None,
    delay_levels: str | None = None,
) -> ReplayResult:
    """Send messages of a store or an export into a living cluster, as ``rmq-reindex replay`` does. Nothing is printed.

    Returns:
        What was sent. Its ``exit_status`` is 0 where all was, 1 where a message was refused or is doubtful (``failures`` lists
        them), and 3 where parts of the log are damaged: what was in them is not sent.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: ``store`` is no log and no export, ``to`` is no proxy, the journal is of another replay, or an answer
            was lost (exit status 1). ``error.result`` says what was sent until then.
        ReindexError: Any other failure (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.replay("store", topic="TopicA", dry_run=True)
        >>> found.sent, found.topics
        (522, {'TopicA': 522})
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.replaying.options import replay_settings

    return api_keywords.result_of(
        running_here.run_replay(
            lambda: replay_settings(api_keywords.given("replay", keywords)), Interrupts(install=False), quiet=True
        )
    )
