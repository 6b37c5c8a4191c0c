"""IndexFiles of a log whose head expires: they are cut where they were, as a broker that goes on would have them.

``IndexService`` cuts by count from the first record that it ever indexed. A build of what is left of the log begins its count
there, and every file would be another. So ranges that are gone stay known as long as a file holds items of them, and a file
goes when its end lies below the log's first offset, the last file never (``IndexService.deleteExpiredFile``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.incremental.last_build import LastBuild
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index.plan import EarlierFiles, IndexFilePlan, Stretch, plan_index_files
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore, begins_alike
from rocketmq_reindex.udfs.write.index import ends, maker_of, staged_items


@dataclass
class IndexHistory:
    """The ranges in front of the log, and the plans of all files that are left."""

    ghosts: list[ScanEntry]
    begun: EarlierFiles
    plans: list[IndexFilePlan]
    anew: bool = False
    """whether files are cut elsewhere than in the build before"""


def plan_with_history(
    store: ScanStore, last: LastBuild | None, log: Commitlog, accepted: list[RangeSummary], index_items: int
) -> IndexHistory:
    """Plan the files of ``accepted``, going on with those of the build before where that can be."""
    ghosts, begun, anew = _in_front(last, log)
    summaries = [store.summary(entry, -1) for entry in ghosts]
    plans = plan_index_files([*summaries, *accepted], index_items, begun)
    gone = _expired(plans, log.segments[0].start) if ghosts else 0
    if gone:
        skip = begun.skip + sum(plan.items for plan in plans[:gone])
        begun = EarlierFiles(skip, maker_of(plans[gone]), begun.window)
        plans = [dataclasses.replace(plan, number=plan.number - gone) for plan in plans[gone:]]
    while ghosts and summaries[0].items <= begun.skip - 1:
        # The last item that is gone stays: a file's header inherits from the one before it.
        windows = [window for _, window in summaries[0].windows] + ([] if begun.window is None else [begun.window])
        begun = EarlierFiles(begun.skip - summaries[0].items, begun.maker, max(windows, default=None))
        ghosts, summaries = ghosts[1:], summaries[1:]
    return IndexHistory(ghosts, begun, plans, anew)


def fingerprints(store: ScanStore, history: IndexHistory, entries: Iterable[ScanEntry], settings: BuildSettings) -> list[str]:
    """Stands for the bytes of each file: the items of known ranges in it, and how it is written."""
    names = {store.summary(entry, -1).block: entry.identity for entry in (*history.ghosts, *entries)}
    how = [settings.hash_slots, settings.index_items, settings.broker_version]

    def told(stretch: Stretch | None) -> list[Any] | None:
        return [names[stretch.block], stretch.start, stretch.count] if stretch else None

    found = []
    for plan in history.plans:
        seal = settings.checkpoint == "safe" and plan.last
        text = json.dumps([how, seal, [told(s) for s in plan.stretches], told(plan.before), plan.maker, plan.full])
        found.append(new_digest([text.encode()]).digest().hex())
    return found


def _in_front(last: LastBuild | None, log: Commitlog) -> tuple[list[ScanEntry], EarlierFiles, bool]:
    """(ranges that are gone, where the files were begun, whether what was known of them is of no use)."""
    if last is None or not last.segments:
        return [], EarlierFiles(), False
    known = bool(last.ghosts)
    starts = [int(name) for name, _ in last.segments]
    if not log.segments or log.segments[0].start not in starts:
        # All of it is gone, or there is more in front than there was.
        return [], EarlierFiles(), known or bool(log.segments)
    low = log.segments[0].start
    if (known or low > starts[0]) and not _goes_on(last, log):
        return [], EarlierFiles(), True
    return [*last.ghosts, *(entry for entry in last.built_from if entry.start < low)], last.begun, False


def _goes_on(last: LastBuild, log: Commitlog) -> bool:
    """Whether a range of the build before begins in this log as it did: else it is another log, of the same offsets."""
    paths = {segment.name: segment.path for segment in log.segments}
    known = [entry for entry in last.built_from if entry.segment in paths and entry.head[0]]
    return not known or any(begins_alike(entry, paths[entry.segment]) for entry in known)


def _expired(plans: list[IndexFilePlan], low: int) -> int:
    """How many of the first files end below ``low``; the last one is never counted."""
    for count, plan in enumerate(plans[:-1]):
        if int(staged_items(ends(plan.stretches)[1])[0]["phy_offset"]) >= low:
            return count
    return max(0, len(plans) - 1)
