"""The checkpoint's part of a verify."""

from __future__ import annotations

import dataclasses
from typing import Final

from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.verifying.index import Index
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import VerifySummary
from rocketmq_reindex.storage_format.checkpoint import SIZE as CHECKPOINT_SIZE
from rocketmq_reindex.storage_format.checks.checkpoint import StoreTimes, compare_checkpoint
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs import files

CHECKPOINT_READ: Final = 1 << 20
"""bytes that are read of it at most"""


def check_checkpoint(
    settings: VerifySettings, log: Commitlog, accepted: list[RangeSummary], index: Index, tally: Tally, summary: VerifySummary
) -> None:
    """Compare the store's checkpoint (``StoreCheckpoint``) with what the log and the IndexFiles say."""
    store = settings.store
    if files.entry_of(files.join(store, "abort")).kind != files.ABSENT:
        tally.add("abort-file", 1, "abort", 0, "is there")
    path = files.join(store, "checkpoint")
    if files.entry_of(path).kind != files.FILE:
        tally.add("checkpoint-missing", 1, "checkpoint", 0, "is not there")
        return
    with files.Reader(path) as reader:
        data = reader.read(0, min(reader.size(), CHECKPOINT_READ))
    if settings.trimmed:
        data = data.ljust(CHECKPOINT_SIZE, b"\0")
    dispatched = [s for s in accepted if s.records]
    with_units = [s for s in accepted if s.unit_records]
    times = StoreTimes(
        log.segments[0].start if log.segments else 0,
        log.segments[-1].segment_end if log.segments else 0,
        dispatched[-1].last_time if dispatched else 0,
        with_units[-1].last_unit_time if with_units else 0,
        len(dispatched),
        len(with_units),
        max((s.time_max for s in dispatched), default=0),
        dispatched[-1].last_dispatched if dispatched else 0,
    )
    found, differences, usual = compare_checkpoint(data, times, index.ends(), settings.rules)
    tally.merge(differences)
    summary.checkpoint = dataclasses.asdict(found)
    if usual:
        summary.notes.append(
            f"the next crash deletes the last IndexFile ({counted(usual, 'item')}), as with any broker: "
            "a build seals it, then no crash does"
        )
    if 0 < found.physic < min(times.last_time, times.last_unit_time) and "checkpoint-stale" not in differences.counts:
        summary.notes.append(
            "the checkpoint's physicMsgTimestamp is older than the last record, as a clean stop right after it leaves it: "
            "the next crash dispatches more again"
        )
    if times.log_end < found.master_flushed and "checkpoint-master" not in differences.counts:
        behind = found.master_flushed - times.log_end
        summary.notes.append(
            f"masterFlushedOffset {found.master_flushed} lies {behind:,} bytes behind the log's end: "
            "the store is a replica's, which had not caught up with its master"
        )
