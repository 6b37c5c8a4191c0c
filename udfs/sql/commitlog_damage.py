"""Damage in one range of the log, as ``rocketmq-commitlog`` shows it, and old records behind the log's end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import InputPartition

from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import TORN_TAIL_MAX, Hole, RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.scan.stale_tail import Damage, StaleTail, damage_of
from rocketmq_reindex.storage_format.walk.state import MessageArrays
from rocketmq_reindex.udfs.scan.segment_reader import find_stale_tail
from rocketmq_reindex.udfs.sql.options import Bounds


@dataclass
class LogRange(InputPartition):
    """A range of the log, which one task reads."""

    spec: RangeSpec
    segment: str
    """name of its segment"""
    followed: bool
    """whether a later segment holds data: then zeros at the end of this one are damage"""
    missing: Hole | None = None
    """segments missing before this one"""


class LogEnd:
    """Finds where the log ends in a range of its last segment with data, if old records lie behind that end.

    ``before`` is the summary of the scan of the segment up to the range.
    """

    def __init__(self, partition: LogRange, before: RangeSummary) -> None:
        self._partition, self._before = partition, before
        self._seen = 0
        self._stale: StaleTail | None = None
        if before.holes:
            self._look_for_tail(damage_of(before.holes))

    def _look_for_tail(self, holes: list[Damage]) -> None:
        spec = self._partition.spec
        if self._stale is None and not self._partition.followed and len(holes) > self._seen:
            tail = find_stale_tail(spec.path, (spec.segment_start, spec.data_end, spec.segment_end), holes)
            self._stale = tail if isinstance(tail, StaleTail) else None
        self._seen = len(holes)

    def before(self, low: int) -> bool:
        """Whether the log goes on at the phy_offset ``low``, as far as that is known yet."""
        return self._stale is None or low < self._stale.offset

    def cut(self, block: Block, summary: RangeSummary) -> Block:
        """A block without old records. The summary has all damage before the block's last record by now."""
        holes = damage_of(self._before.holes)
        if self._before.tail >= 0 and summary.first > self._before.tail:
            holes.append(Damage(self._before.tail, summary.first - self._before.tail, framed=False))
        self._look_for_tail(holes + damage_of(summary.holes))
        if self._stale is None:
            return block
        count = int(np.searchsorted(block.messages.phy_offset, self._stale.offset))
        kept = MessageArrays(*(column[:count] for column in block.messages))  # type: ignore[arg-type]  # of two dtypes
        return dataclasses.replace(block, messages=kept)

    def holes(self, holes: list[Hole]) -> list[Hole]:
        """The damage of the range, with old records as one stretch, where they begin."""
        if self._stale is None:
            return holes
        kept = [hole for hole in holes if hole.offset < self._stale.offset]
        if len(kept) < len(holes):
            kept.append(Hole(self._partition.segment, self._stale.offset, self._stale.length, self._stale.reason))
        return kept


def holes_of(partition: LogRange, before: RangeSummary, summary: RangeSummary, bounds: Bounds) -> list[Hole]:
    """The damage that ends in a range.

    Damage may begin before the range: ``before``, the summary of the scan up to it, has the offset.
    """
    spec, name = partition.spec, partition.segment
    holes = [Hole(name, offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    open_at, code = max(before.tail, bounds.start_offset) if before.tail >= 0 else -1, before.tail_code
    if open_at >= 0 and summary.first >= 0:
        if summary.first > open_at:
            holes.insert(0, Hole(name, open_at, summary.first - open_at, r.REASONS[code]))
        open_at = -1
    if open_at < 0 and summary.tail >= 0:
        open_at, code = summary.tail, summary.tail_code
    if open_at < 0 or spec.high < min(spec.data_end, bounds.end_offset):
        return holes
    if partition.followed:
        return [*holes, Hole(name, open_at, spec.high - open_at, r.REASONS[code])]
    last = max(before.last_nonzero, summary.last_nonzero)
    if last >= open_at:
        length = last + 1 - open_at
        sound = max(before.last_sound, summary.last_sound) >= open_at
        torn = "torn tail: " if length <= TORN_TAIL_MAX and not sound else ""
        holes.append(Hole(name, open_at, length, f"{torn}{r.REASONS[code]}"))
    return holes
