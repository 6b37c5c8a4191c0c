"""The answer to a question: which search finds its messages."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_reindex.jobs.querying.found import Found
from rocketmq_reindex.jobs.querying.options import Query
from rocketmq_reindex.jobs.querying.search import Search


def answer(asked: Query, search: Search) -> Iterator[Found]:
    """The messages that are asked for, as they are found."""
    if asked.queue is not None:
        assert asked.topic is not None
        yield from search.by_queue(asked.topic, asked.queue, asked.offset, asked.time, asked.max or 1)
        return
    if asked.id is not None:
        found = search.by_id(asked.id, asked.topic)
    elif asked.physical is not None:
        found = search.by_phy_offset(asked.physical)
    elif asked.tag is not None:
        assert asked.topic is not None
        found = search.by_tag(asked.topic, asked.tag, asked.in_time, asked.max)
    else:
        assert asked.topic is not None
        assert asked.key is not None
        found = search.by_key(asked.topic, asked.key, asked.in_time, asked.max)
    is_found = False
    for message in found:
        is_found = True
        yield Found(message, None)
    if not is_found:
        search.say_what_is_unknown(asked.topic, asked.id)
