"""What a search finds."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_reindex.storage_format.record.message import Message


class Found(NamedTuple):
    """A message, and the queue offset at which its queue serves it. The offset is None where no queue was asked.

    The offset should be the record's own QUEUEOFFSET.
    """

    message: Message
    queue_offset: int | None
