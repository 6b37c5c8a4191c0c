"""What the queues out of order say of damage: records out of line, and queue offsets whose records are lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rocketmq_reindex.jobs.building.odd_queues import OddQueues, segment_of
from rocketmq_reindex.storage_format.errors import RefusedError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.order import Fill, Kept
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.topics import is_own
from rocketmq_reindex.udfs.order.placements import FILLS, KEPT


class Gap(NamedTuple):
    """Queue offsets from ``queue_offset`` on whose records are lost: they lay in [low, high) of the log."""

    topic: str
    queue: int
    queue_offset: int
    offsets: int
    low: int
    high: int


def wrong_offsets(odd: OddQueues, segments: list[Segment]) -> list[Hole]:
    """Return the records whose queue offsets are sure to be wrong, as holes: damage that shows in no other way.

    The bytes of all other records out of line may be as a broker wrote them: a repair leaves them alone, and says so.

    Raises RefusedError where a queue has more records out of line than are listed one by one.
    """
    found = []
    for queue in odd.queues():
        name = f"queue {escape(queue.topic)}/{queue.queue}"
        if queue.more_lost:
            raise RefusedError(f"{name}: {queue.more_lost.records} more records out of line: is this a commitlog?")
        reason = f"{r.OUT_OF_LINE} ({name})"
        wrong = (one for one in queue.lost if one.is_wrong)
        found += [Hole(segment_of(segments, one.phy_offset), one.phy_offset, one.size, reason) for one in wrong]
    return found


def gaps(odd: OddQueues) -> Iterator[Gap]:
    """Yield the gaps of the queues, in which each message has a record of its own.

    A light queue's messages are records of other topics, and a batch has many messages: nobody knows how many were in one.
    Of its own topics a broker reads the records itself, and stops at one that lacks what it wrote there. In front of a queue's
    new beginning nobody knows whether what is missing was of the old life or the new one: a record of the wrong one is out of
    line.
    """
    for queue in odd.queues():
        if queue.batch or queue.where is None or is_own(queue.topic):
            continue
        rows = np.asarray(queue.where.read())
        kept = [Kept(*row) for row in rows[: KEPT * queue.where.kept].reshape(-1, KEPT).tolist()]
        fills = [Fill(*row) for row in rows[KEPT * queue.where.kept :].reshape(-1, FILLS).tolist()]
        between_lives = set(queue.between_lives)
        if fills and fills[0].position < kept[0].begin and not kept[0].shift and kept[0].begin not in between_lives:
            yield Gap(queue.topic, queue.queue, fills[0].position, fills[0].length, 0, kept[0].phy_offset)
        for before, after in pairwise(kept):
            if after.begin in between_lives or before.shift or after.shift:
                continue
            if before.stop < after.begin and before.end <= after.phy_offset:
                yield Gap(queue.topic, queue.queue, before.stop, after.begin - before.stop, before.end, after.phy_offset)
