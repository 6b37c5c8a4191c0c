"""IndexFiles of a log whose head expires: they start and end where a broker that never stopped would have them.

``IndexService`` (5.3) fills files by count, from the first record that it ever indexed. A full build of the rest of the log
starts to count at the first record that is left, and all of its files differ. So an incremental build keeps expired ranges as
long as a file holds items of them. A file goes when it ends below the log's first offset, but the last file never does
(``IndexService.deleteExpiredFile``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.incremental.last_build import LastBuild
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index.plan import EarlierFiles, IndexFilePlan, Stretch, plan_index_files
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs.incremental.samples import begins_alike
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore
from rocketmq_reindex.udfs.write.index import ends, maker_of, staged_items


@dataclass
class IndexHistory:
    """The expired ranges that still count, and the plans of all files that are left."""

    expired: list[ScanEntry]
    start: EarlierFiles
    """where the first file starts"""
    plans: list[IndexFilePlan]
    starts_over: bool = False
    """whether the files do not continue those of the build before"""


class _Known(NamedTuple):
    """What is known of the ranges before the log's first offset."""

    expired: list[ScanEntry]
    start: EarlierFiles
    """where the first file starts"""
    useless: bool = False
    """whether there was more, which does not fit this log"""


def plan_with_history(
    store: ScanStore, last: LastBuild | None, log: Commitlog, accepted: list[RangeSummary], index_items: int
) -> IndexHistory:
    """Plan the files of ``accepted``, and continue those of the build before where that is possible."""
    expired, start, starts_over = _expired_ranges(last, log)
    summaries = [store.summary(entry, -1) for entry in expired]
    plans = plan_index_files([*summaries, *accepted], index_items, start)
    gone = _expired_files(plans, log.segments[0].start) if expired else 0
    if gone:
        skip = start.skip + sum(plan.items for plan in plans[:gone])
        start = EarlierFiles(skip, maker_of(plans[gone]), start.window)
        plans = [dataclasses.replace(plan, number=plan.number - gone) for plan in plans[gone:]]
    while expired and summaries[0].items <= start.skip - 1:
        # The last expired item stays: a file's header inherits from the item before it.
        windows = [window for _, window in summaries[0].windows] + ([] if start.window is None else [start.window])
        start = EarlierFiles(start.skip - summaries[0].items, start.maker, max(windows, default=None))
        expired, summaries = expired[1:], summaries[1:]
    return IndexHistory(expired, start, plans, starts_over)


def fingerprints(store: ScanStore, history: IndexHistory, entries: Iterable[ScanEntry], settings: BuildSettings) -> list[str]:
    """Return a digest for each file, which stands for its bytes: the items of known ranges in it, and how it is written."""
    names = {store.summary(entry, -1).block: entry.identity for entry in (*history.expired, *entries)}
    how = [settings.hash_slots, settings.index_items, settings.broker_version]

    def items_of(stretch: Stretch | None) -> list[Any] | None:
        return [names[stretch.block], stretch.start, stretch.count] if stretch else None

    found = []
    for plan in history.plans:
        seal = settings.checkpoint == "safe" and plan.last
        text = json.dumps([how, seal, [items_of(s) for s in plan.stretches], items_of(plan.before), plan.maker, plan.full])
        found.append(new_digest([text.encode()]).digest().hex())
    return found


def _expired_ranges(last: LastBuild | None, log: Commitlog) -> _Known:
    if last is None or not last.segments:
        return _Known([], EarlierFiles())
    known = bool(last.expired)
    starts = [int(name) for name, _ in last.segments]
    if not log.segments or log.segments[0].start not in starts:
        # All of the log has expired, or there is more in front of it than there was.
        return _Known([], EarlierFiles(), known or bool(log.segments))
    low = log.segments[0].start
    if (known or low > starts[0]) and not _continues(last, log):
        return _Known([], EarlierFiles(), True)
    return _Known([*last.expired, *(entry for entry in last.built_from if entry.start < low)], last.start)


def _continues(last: LastBuild, log: Commitlog) -> bool:
    """Whether a range of the build before begins in this log as it did. Otherwise it is another log, of the same offsets."""
    paths = {segment.name: segment.path for segment in log.segments}
    known = [entry for entry in last.built_from if entry.segment in paths and entry.head[0]]
    return not known or any(begins_alike(entry, paths[entry.segment]) for entry in known)


def _expired_files(plans: list[IndexFilePlan], low: int) -> int:
    """Return how many of the first files end below the offset ``low``; the last one is never counted."""
    for count, plan in enumerate(plans[:-1]):
        if int(staged_items(ends(plan.stretches)[1])[0]["phy_offset"]) >= low:
            return count
    return max(0, len(plans) - 1)
