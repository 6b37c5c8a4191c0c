"""What the queues out of order say of damage: records out of line, and queue offsets whose records are lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rocketmq_reindex.jobs.building.odd_queues import OddQueues, segment_of
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.order import Kept
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.topics import is_own
from rocketmq_reindex.udfs.order.placements import KEPT


class Gap(NamedTuple):
    """Queue offsets from ``queue_offset`` on whose records are lost: they lay in [low, high) of the log."""

    topic: str
    queue: int
    queue_offset: int
    offsets: int
    low: int
    high: int


def out_of_line(odd: OddQueues, segments: list[Segment]) -> list[Hole]:
    """Return the records whose queue offsets do not fit their queues, as holes: damage that shows in no other way.

    So are the last ones of a queue that lie above its end: nothing is lost before them that would explain it, and a broker that
    dispatches them puts them in the wrong place.

    Raises RefusedError where a queue has more of them than are listed one by one.
    """
    found = []
    for queue in odd.queues():
        name = f"queue {escape(queue.topic)}/{queue.queue}"
        if queue.more_lost:
            raise RefusedError(f"{name}: {queue.more_lost.records} more records out of line: is this a commitlog?")
        for phy_offset, size in (*queue.lost, *queue.ahead):
            found.append(Hole(segment_of(segments, phy_offset), phy_offset, size, f"{r.OUT_OF_LINE} ({name})"))
    return found


def gaps(odd: OddQueues) -> Iterator[Gap]:
    """Yield the gaps of the queues, in which each message has a record of its own.

    A light queue's messages are records of other topics, and a batch has many messages: nobody knows how many were in one.
    Of its own topics a broker reads the records itself, and stops at one that lacks what it wrote there.
    """
    for queue in odd.queues():
        if queue.batch or queue.where is None or is_own(queue.topic):
            continue
        rows = np.asarray(queue.where.read()[: KEPT * queue.where.kept]).reshape(-1, KEPT)
        for before, after in pairwise(Kept(*row) for row in rows.tolist()):
            if before.stop < after.begin and before.end <= after.phy_offset and not before.shift and not after.shift:
                yield Gap(queue.topic, queue.queue, before.stop, after.begin - before.stop, before.end, after.phy_offset)
