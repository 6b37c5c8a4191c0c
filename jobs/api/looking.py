"""``query``, ``messages``, ``inspect`` and ``browse`` of the Python API: they look at messages and files, and write nothing."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.api import keywords as api_keywords, messages as results
from rocketmq_reindex.jobs.api.running_here import run_browse, run_query
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.inspecting.options import InspectResult, inspection, look, summary_text
from rocketmq_reindex.jobs.querying.question import Query, question, row_of, rows_text
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.jobs.store.queue import ServedMessage
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.udfs.times import DELAY_LEVELS, delay_levels as parse_delay_levels, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketmq_reindex.jobs.browsing.options import BrowseResult
    from rocketmq_reindex.jobs.querying import message_rows
    from rocketmq_reindex.udfs.messages import log_rows

# ---------------------------------------------------------------------------------------------------------------------- inspect
# ``inspect`` of the Python API.


@api_keywords.says_keywords
def inspect(
    file: api_keywords.PathLike,
    *,
    kind: option.FileKind | None = None,
    records: bool = False,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    first_offset: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    delay_levels: str | None = None,
) -> InspectResult:
    """Say what one file of a store holds, and what is wrong with it, as ``rmq-reindex inspect`` does.

    Returns:
        The fields of the file by its kind, and its records.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: The file is not there, cannot be read, or is not a file of a store (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.inspect("rebuilt/checkpoint")
        >>> found.kind, found["bytes"]
        ('checkpoint', 4096)
        >>> [row["field"] for row in rr.inspect("rebuilt/checkpoint", records=True).records][:2]
        ['physicMsgTimestamp', 'logicsMsgTimestamp']
    """
    keywords = dict(locals())
    keywords["files"] = [keywords.pop("file")]
    with failures_as_errors(str(file)):
        asked = inspection(api_keywords.given("inspect", keywords))
        result = look(asked.files[0], asked)
    result.end(summary_text(result.to_dict()))
    return result


# ------------------------------------------------------------------------------------------------------------------------ query
# ``query`` of the Python API.


@api_keywords.says_keywords
def query(
    store: api_keywords.PathLike | None = None,
    *,
    topic: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    queue: api_keywords.Size | None = None,
    offset: api_keywords.Size | None = None,
    time: api_keywords.Time | None = None,
    id: str | None = None,  # noqa: A002  the option's name
    physical: api_keywords.Size | None = None,
    begin: api_keywords.Time | None = None,
    end: api_keywords.Time | None = None,
    max: api_keywords.Size | None = None,  # noqa: A002  the option's name
    body: option.BodyForm | None = None,
    body_max: api_keywords.Size | None = None,
    scan: bool = False,
    commitlog: api_keywords.Paths | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    delay_levels: str | None = None,
    broker_conf: api_keywords.PathLike | None = None,
) -> results.QueryResult:
    """Find messages in a store, whole or broken, without a broker and without Spark, as ``rmq-reindex query`` does.

    Ask by one of ``key``, ``tag``, ``queue``, ``id`` and ``physical``. Times are a ``datetime`` with its zone, milliseconds
    since 1970, or an ISO text with its zone. All messages that are found are kept in memory: use ``max`` where there are many.

    Returns:
        The messages, none where the store has none, and warnings about what could not be read.

    Raises:
        UsageError: The keywords do not make one question (exit status 2).
        InputError: The store cannot be read, or nothing was found and some of it could not be read or it does not know the
            topic (exit status 1). In the latter cases ``result`` has the warnings.

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.query("store", physical=0)
        >>> len(found), found[0].phy_offset
        (1, 0)
        >>> [message.queue_offset for message in rr.query("store", topic="TopicA", queue=1, offset=3, max=2)]
        [3, 4]
    """
    keywords = dict(locals())
    warnings: list[str] = []
    searched: list[str] = []
    rows: list[dict[str, Any]] = []

    def keep(served_messages: Iterator[ServedMessage], log: StoreLog, asked: Query, notes: Notes) -> int:
        rows.extend(row_of(served, log, asked, notes) for served in served_messages)
        return len(rows)

    notes = Notes(warnings.append, searched.append)
    status = run_query(lambda: question(api_keywords.given("query", keywords)), notes, keep, quiet=True)
    result = results.QueryResult(tuple(map(results.FoundMessage, rows)), tuple(warnings), " ".join(searched))
    result.exit = status
    result.end(rows_text(rows))
    if status:
        why = f", and some of the store could not be read: {notes.lost}" if notes.lost else f": {notes.unknown}"
        error = InputError(f"nothing found{why}")
        error.result = result
        raise error
    return result


# ----------------------------------------------------------------------------------------------------------------------- browse
# ``browse`` of the Python API.


@api_keywords.says_keywords
def browse(
    stores: api_keywords.Paths,
    *,
    port: api_keywords.Size | None = None,
    export_site: api_keywords.PathLike | None = None,
    redact: bool = False,
    commitlog: api_keywords.Paths | None = None,
    findings: api_keywords.Paths | None = None,
    delay_levels: str | None = None,
) -> BrowseResult:
    """Show stores in a browser, on 127.0.0.1 alone, as ``rmq-reindex browse`` does. Nothing is printed, and nothing waits.

    The pages are served by threads of this process, until ``stop`` of the result, at the end of a ``with`` block, or until the
    process ends. The stores are only read. With ``export_site`` the pages are written into that folder instead.

    Returns:
        Where the pages are: ``url`` has the token that lets a browser in, ``site`` is the folder of written pages. With
        ``exit_status`` 3 some pages could not be made: ``warnings`` say which.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: A store is none, the port is taken, the folder is not empty, or the extra ``browse`` is not installed
            (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> with rr.browse("store", port=0) as pages:
        ...     pages.url.partition(":")[0], pages.stores
        ('http', ['store'])
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.browsing.options import browse_settings

    return api_keywords.result_of(run_browse(lambda: browse_settings(api_keywords.given("browse", keywords))))


# --------------------------------------------------------------------------------------------------------------------- messages
# ``messages`` of the Python API: all of a log, where ``query`` looks for a few.


def messages(
    store: api_keywords.PathLike | None = None,
    *,
    commitlog: api_keywords.Paths | None = None,
    topics: str | Sequence[str] = (),
    keys: str | Sequence[str] = (),
    since: api_keywords.Time | None = None,
    until: api_keywords.Time | None = None,
    columns: Sequence[str] = (),
    body: message_rows.Body = "unpacked",
    max_body: int = 4 << 20,
    damage: log_rows.ShownDamage = "rows",
    segment_size: int = 0,
    delay_levels: str | None = None,
) -> pa.RecordBatchReader:
    """Read the messages of a log as Arrow batches, in the order of the log, without a broker, a JVM or Spark.

    The log is read once, by all processors, and never held in memory as a whole: for each processor there are some stretches
    of 32 MiB and their rows, until the reader is at its end, or deleted. No ConsumeQueue and no index is needed. Each row is a
    record as it was stored: a record of a system topic stays one, and a batch (``SYS_FLAG`` has its bit) is one row.

    Args:
        store: The store: a folder or URI. Its segments are in ``store/commitlog``.
        commitlog: Folders of segments, instead of ``store/commitlog``; one, or a sequence.
        topics: Only these topics: names or globs; one, or a sequence. Default: all.
        keys: Only messages with one of these keys, or with one of them as unique key; one, or a sequence. The whole log is
            scanned: ``query`` finds a key by the index.
        since: Only messages stored at this time or later: a ``datetime`` with its zone, milliseconds since 1970, or an ISO
            text with its zone.
        until: Only messages stored before this time.
        columns: Names of columns, in their order. Default: all.
        body: ``"unpacked"`` (zlib, LZ4 and Zstandard are undone), ``"stored"`` (as it is in the log), or ``"none"`` for no
            column ``body``.
        max_body: Bytes of the longest unpacked body; a longer one, and one that is broken, is null.
        damage: ``"rows"``: a damaged stretch is a row with ``damage``, ``commitLogOffset`` and ``msgSize``, all else null,
            whatever else is asked for. It follows the messages of its segment. ``"skip"``: it is left out, and so is the
            column. ``"fail"``: it ends the reading with RefusedError, unless it is a torn or stale tail.
        segment_size: Bytes of a segment. Default: the size that the files show.
        delay_levels: messageDelayLevel of the broker, by which ``tagsCode`` and ``deliverTime`` of delayed messages are made.
            Default: RocketMQ's own.

    Returns:
        A ``pyarrow.RecordBatchReader``. DuckDB and Polars take it as it is, ``read_pandas()`` makes a DataFrame of it. Its
        columns are those of the data source ``rocketmq-commitlog``.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: The store has no log that can be read (exit status 1).
        RefusedError: While it is read: damage, with ``damage="fail"`` (exit status 5).

    Example:
        >>> import rocketmq_reindex as rr
        >>> reader = rr.messages("store", topics="TopicA", columns=["queueId", "consumeQueueOffset", "body"])
        >>> sum(batch.num_rows for batch in reader)
        522
    """
    from rocketmq_reindex.jobs.querying.message_rows import MessageQuestion

    asked = MessageQuestion(
        "" if store is None else _path(store),
        tuple(map(_path, _each(commitlog))),
        tuple(map(str, _each(topics))),
        tuple(map(str, _each(keys))),
        _milliseconds("since", since),
        _milliseconds("until", until),
        tuple(_each(columns)),
        body,
        max_body,
        damage,
        segment_size,
        _delays(delay_levels),
    )
    schema = asked.schema()
    try:
        with failures_as_errors("STORE"):
            batches = asked.read(schema)
    except InputError as error:
        # The log is named by the same keywords as there.
        error.args = (api_keywords.in_keywords(str(error), "verify"), *error.args[1:])
        raise

    def named() -> Iterator[pa.RecordBatch]:
        with failures_as_errors("STORE"):
            yield from batches

    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, named())


def _path(place: api_keywords.PathLike) -> str:
    try:
        return files.checked(os.fsdecode(place))
    except InputError as error:
        raise UsageError(f"messages: {error}") from None


def _delays(levels: str | None) -> tuple[int, ...]:
    try:
        return parse_delay_levels(DELAY_LEVELS if levels is None else levels)
    except ValueError as error:
        raise UsageError(f"messages: delay_levels: {error}") from None


def _each(value: object) -> list[Any]:
    return [] if value is None else api_keywords.several(value)


def _milliseconds(name: str, time: api_keywords.Time | None) -> int | None:
    if time is None:
        return None
    told = f"messages: {name}"
    return parse_time(api_keywords.time_text(told, time) if isinstance(time, dt.datetime) else str(time), told)
