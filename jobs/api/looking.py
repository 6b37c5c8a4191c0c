"""``query`` and ``inspect`` of the Python API: they look at messages and files, and write nothing."""

from collections.abc import Iterator
from typing import Any

from rocketmq_reindex.jobs.api import keywords as api_keywords, messages
from rocketmq_reindex.jobs.api.running import run_query
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.inspecting.options import InspectResult, inspection, look, summary_text
from rocketmq_reindex.jobs.querying.answer import row_of, rows_text
from rocketmq_reindex.jobs.querying.options import Query, question
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.jobs.store.queue import ServedMessage
from rocketmq_reindex.storage_format.errors import InputError

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
    broker_conf: api_keywords.PathLike | None = None,
) -> messages.QueryResult:
    """Find messages in a store, whole or broken, without a broker and without Spark, as ``rmq-reindex query`` does.

    Ask by one of ``key``, ``tag``, ``queue``, ``id`` and ``physical``. Times are a ``datetime`` with its zone, milliseconds
    since 1970, or an ISO text with its zone. All messages that are found are kept in memory: use ``max`` where there are many.

    Returns:
        The messages, none where the store has none, and warnings about what could not be read.

    Raises:
        UsageError: The keywords do not make one question (exit status 2).
        InputError: The store cannot be read, or nothing was found and some of it could not be read (exit status 1). In the
            latter case ``result`` has the warnings.

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
    result = messages.QueryResult(tuple(map(messages.FoundMessage, rows)), tuple(warnings), " ".join(searched))
    result.exit = status
    result.end(rows_text(rows))
    if status:
        error = InputError(f"nothing found, and some of the store could not be read: {notes.lost}")
        error.result = result
        raise error
    return result
