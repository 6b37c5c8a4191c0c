"""``inspect`` of the Python API."""

from __future__ import annotations

from typing import Literal

from rocketmq_reindex.jobs.api.failing import failures_as_errors
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Size, given
from rocketmq_reindex.jobs.api.messages import InspectResult
from rocketmq_reindex.jobs.inspecting.options import build_parser, inspection
from rocketmq_reindex.jobs.inspecting.show import summary_text


@says_keywords
def inspect(
    file: PathLike,
    *,
    kind: Literal["segment", "consumequeue", "batchconsumequeue", "index", "checkpoint", "timercheck", "timerlog", "timerwheel"]
    | None = None,
    records: bool = False,
    hash_slots: Size | None = None,
    index_items: Size | None = None,
    first_offset: Size | None = None,
    segment_size: Size | None = None,
) -> InspectResult:
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
    with failures_as_errors(str(file)):
        from rocketmq_reindex.jobs.inspecting.look import look

        asked = inspection(given(build_parser(), keywords))
        found = look(asked.files[0], asked)
    rows = found.found.rows if records else ()
    return InspectResult(0, summary_text(found.summary), found.file, found.kind, found.found.summary, rows)
