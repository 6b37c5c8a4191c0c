"""Old records after the log's end. They are looked for where the last segment with data has damage, and nowhere else."""

from __future__ import annotations

from typing import Final

from rocketmq_reindex.jobs.building.advice import REPAIR, WITHOUT_REPLICA, refusal, repair
from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.checkpoint import Checkpoint
from rocketmq_reindex.storage_format.queue.order import RolledBack
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.chain import Chain, misnamed
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from rocketmq_reindex.storage_format.scan.ranges import Hole, Segment
from rocketmq_reindex.storage_format.scan.stale_tail import Damage, Doubt, StaleTail
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segment_reader import find_stale_tail, has_data

_CODES: Final = {text: code for code, text in r.REASONS.items()}


def mark_stale_tail(segments: list[Segment], chain: Chain, store: str = "") -> None:
    """Note in the chain whether its damage is a stale tail, or may be one. Reads the damaged segment again.

    The checkpoint of ``store``, where there is one, is a hint.
    """
    holes = [hole for hole in chain.holes if hole.reason != r.MISSING_SEGMENT]
    if not holes or len(holes) > HOLES_MAX:
        return
    last = max(hole.offset for hole in holes)
    segment = next((segment for segment in segments if segment.start <= last < segment.segment_end), None)
    if segment is None:
        return
    # A truncation deletes all files behind the one that it cuts.
    later = [other for other in segments if other.start > segment.start]
    if any(has_data(other.path, other.data_end - other.start) for other in later):
        return
    mine = [Damage.of(hole.offset, hole.length, _CODES.get(hole.reason, 0)) for hole in holes if hole.offset >= segment.start]
    bounds = segment.start, segment.data_end, segment.segment_end
    checkpoint = read_times(files.join(store, "checkpoint")) if store else Checkpoint()
    tail = find_stale_tail(segment.path, bounds, mine, (checkpoint.physic, checkpoint.logics))
    if isinstance(tail, StaleTail):
        chain.stale = Hole(segment.name, tail.offset, tail.length, tail.reason)
    if isinstance(tail, Doubt):
        chain.doubt = tail
        chain.rolled_back = RolledBack(tail.offset, segment.segment_end, tail.all_older)


def doubts(doubt: Doubt) -> str:
    """Return what an operator must know about it."""
    return f"at offset {doubt.offset} old records may begin that a truncation left behind the log's end, but: {doubt.why}"


def advice(settings: StoreSettings, chain: Chain) -> str:
    """Return what to do where damage is refused."""
    if chain.doubt is None:
        return refusal(settings, chain.holes[0].offset)
    return f"{_either(chain.doubt)}: {repair(settings)} ({WITHOUT_REPLICA})"


def _either(doubt: Doubt) -> str:
    return f"{doubts(doubt)}: choose --on-damage stop if the broker cut its log there; if the disk is damaged, {REPAIR}"


def undecided(chain: Chain) -> str:
    """Return why no build is advised before somebody has looked: a wrong name, or old records; "" for neither."""
    wrong = misnamed(chain.holes)
    if wrong is not None:
        return f"{wrong.segment}: {wrong.reason}: rename it first"
    return _either(chain.doubt) if chain.doubt else ""
