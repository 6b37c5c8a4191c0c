"""``query`` and ``inspect`` of the Python API: they look at messages and files, and write nothing."""

from typing import Literal

from rocketmq_reindex.jobs.api import failing, keywords as api_keywords, messages
from rocketmq_reindex.jobs.inspecting.options import inspection, summary_text
from rocketmq_reindex.jobs.querying.options import question
from rocketmq_reindex.storage_format.errors import InputError

# ---------------------------------------------------------------------------------------------------------------------- inspect
# ``inspect`` of the Python API.


@api_keywords.says_keywords
def inspect(
    file: api_keywords.PathLike,
    *,
    kind: Literal["segment", "consumequeue", "batchconsumequeue", "index", "checkpoint", "timercheck", "timerlog", "timerwheel"]
    | None = None,
    records: bool = False,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    first_offset: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
) -> messages.InspectResult:
    """Say what one file of a store holds, and what is wrong with it, as ``rmq-reindex inspect`` does.

    Args:
        file: A segment, ConsumeQueue file, batch ConsumeQueue file, IndexFile, checkpoint or timer file; a path or URI.
        kind: What the file is. Default: by its folder, name and content.
        records: Also give every record, unit or item, as ``records`` of the result.
        hash_slots: Number of slots of an IndexFile. Default: taken from the file.
        index_items: Number of items of an IndexFile. Default: taken from the file.
        first_offset: Offset of the file's first byte: of a segment in the log, of a ConsumeQueue file in its queue. Default: by
            its name, or by a segment's records.
        segment_size: Size of a whole segment in bytes. Default: that of the first segment beside the file.

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
    with failing.failures_as_errors(str(file)):
        from rocketmq_reindex.jobs.inspecting.options import look

        asked = inspection(api_keywords.given("inspect", keywords))
        found = look(asked.files[0], asked)
    rows = found.found.rows if records else ()
    return messages.InspectResult(0, summary_text(found.summary), found.file, found.kind, found.found.summary, rows)


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
    body: Literal["text", "json", "hex", "none"] | None = None,
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

    Args:
        store: Folder or URI of the store, with ``commitlog``, ``index`` and ``consumequeue`` in it.
        topic: Topic of the messages. ``key``, ``tag`` and ``queue`` need it.
        key: All messages of the topic with this key or unique key, by the IndexFiles.
        tag: All messages of the topic whose tags are this one text, by the tag items of the IndexFiles (RocketMQ 5.4 and newer)
            and, where these have none, by reading the log. ``searched`` of the result says which.
        queue: Messages of this queue of the topic. Goes with ``offset`` or ``time``.
        offset: Messages from this queue offset on.
        time: Messages of the queue that were stored at this time or later.
        id: The message of this id: the broker's offset id, or the client's unique id.
        physical: The message at this offset of the commitlog, in bytes.
        begin: With ``key`` or ``tag``: only messages stored at this time or later.
        end: With ``key`` or ``tag``: only messages stored at this time or earlier.
        max: Number of messages at most; with ``key`` or ``tag`` the newest ones. Default: all, and one of a queue.
        body: How bodies are given; a body that is not text is given as hex. Default: ``text``.
        body_max: Number of bytes of a body to read and unpack at most. Default: 4194304.
        scan: Read the whole log instead of the IndexFiles or the files of a queue.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.
        hash_slots: Number of slots of an IndexFile. Default: taken from the files.
        index_items: Number of items of an IndexFile. Default: taken from the files.
        broker_conf: A ``broker.conf``, for sizes and folders. Keywords win.

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
    with failing.failures_as_errors("STORE"):
        from rocketmq_reindex.jobs.querying.answer import answer, row_of, rows_text
        from rocketmq_reindex.jobs.querying.search import Search
        from rocketmq_reindex.jobs.store.folders import Notes

        asked, notes = question(api_keywords.given("query", keywords)), Notes(warnings.append, searched.append)
        with Search(asked.store, asked.roots, notes, sizes=asked.sizes, scan=asked.scan) as search:
            rows = [row_of(found, search.log, asked, notes) for found in answer(asked, search)]
        notes.close()
    lost = notes.lost and not rows
    result = messages.QueryResult(
        1 if lost else 0, rows_text(rows), tuple(map(messages.FoundMessage, rows)), tuple(warnings), " ".join(searched)
    )
    if lost:
        error = InputError(f"nothing found, and some of the store could not be read: {warnings[0]}")
        error.result = result
        raise error
    return result
