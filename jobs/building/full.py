"""The steps of a build that depend on where it starts: a full build starts from the log alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.building import writing
from rocketmq_reindex.jobs.building.asked import check_begins
from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.estimate import check_free
from rocketmq_reindex.jobs.building.planning import scan_settings
from rocketmq_reindex.jobs.building.scan_memory import ScanMemory
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.building.writing import WrittenFiles
from rocketmq_reindex.jobs.publishing.leftovers import Leftovers
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.watching.progress import Probe, Reporter
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan, plan_index_files
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.progress import Positions
from rocketmq_reindex.udfs.staging import StagingFolder


@dataclass(frozen=True)
class Result:
    """What a build made, before it is published."""

    accepted: list[RangeSummary]
    """the ranges that it was built from"""
    order: Order
    written: WrittenFiles
    entries: list[dict[str, Any]]
    """the entries of the manifest that the driver made: IndexFiles, checkpoint, topics"""
    parts: list[str]
    """files with the other entries, sorted by path"""


class FullBuild:
    """Reads all of the log and writes every file. A build that starts from an earlier one overrides these steps."""

    memory: ScanMemory | None = None
    """what is known of ranges that were scanned before"""

    def __init__(self, settings: BuildSettings, log: Commitlog) -> None:
        self.settings, self.log = settings, log

    def nothing_new(self, summary: Summary) -> bool:
        """Return whether DIR holds this build already; ``summary`` then says what it holds. DIR's lock is held."""
        _ = summary
        return False

    def check_room(
        self, staging: StagingFolder, accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None,
        extra_units: int = 0,
    ) -> None:  # fmt: skip
        """Raises InputError when the output cannot fit, by a sample of the log, or by the counts of the ``accepted`` ranges."""
        check_free(self.settings, scan_settings(self.settings), self.log, staging, accepted, plans, extra_units)

    def staged(self, staging: StagingFolder) -> None:
        """The staging folder is there; nothing has been scanned yet. Raises InputError when the run cannot continue."""

    def check_begins(self, segments: list[Segment], chain: Chain) -> None:
        """Raises InputError or RefusedError where the first segment is none of RocketMQ."""
        check_begins(self.settings, segments, chain)

    def mended(
        self, scan: Scan, segments: list[Segment], chain: Chain, summary: Summary, reporter: Reporter
    ) -> tuple[list[Segment], Chain]:
        """Return the segments and the chain that are built from; a repair mends the log first."""
        _ = scan, summary, reporter
        return segments, chain

    def more_entries(self) -> list[dict[str, Any]]:
        """Return entries of the manifest: of files that only these steps write."""
        return []

    def plan_index(self, accepted: list[RangeSummary]) -> list[IndexFilePlan]:
        """Return which items each IndexFile holds."""
        return plan_index_files(accepted, self.settings.index_items)

    def write(self, scan: Scan, accepted: list[RangeSummary], order: Order, plans: list[IndexFilePlan]) -> WrittenFiles:
        """Write ConsumeQueue files and IndexFiles into the staging folder."""
        return writing.write_both(scan, self.settings, accepted, order, plans)

    def save(self, staging: StagingFolder, result: Result, summary: Summary, has_rows: bool) -> bool:
        """Keep what a later run needs. Return whether DIR holds this build already, so that nothing is published.

        ``has_rows``: rows of the build go into the Delta tables once it is published.
        """
        _ = staging, result, summary, has_rows
        return False

    def published(self, staging: StagingFolder, left: Leftovers) -> None:
        """The build has been published. ``left`` removes what no build needs any longer."""

    def rows_written(self, left: Leftovers) -> None:
        """All rows of the published build are in the Delta tables. ``left`` removes what said that they are missing."""


def to_write(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], plans: list[IndexFilePlan]
) -> tuple[int, int, Probe]:
    """Return how many buckets and IndexFiles are to be written, 0 for bytes, and a probe.

    The share that is done is that of rows: of units by buckets, taken as equal, of items by IndexFiles and within them.
    """
    buckets = len(set(scan.task.keys)) if "consumequeue" in settings.only else 0
    units = sum(summary.units + summary.batch_units for summary in accepted) if buckets else 0
    items = {f"index-{plan.number}": plan.items for plan in plans} if "index" in settings.only else {}
    rows, positions = units + sum(items.values()), Positions(scan.staging)

    def probe() -> tuple[int, float]:
        shares = positions.shares()
        parts, made = files.names(scan.staging.parts), files.names(scan.staging.made)
        whole = {f"index-{name.partition('-')[0]}" for name in made}
        done = units * min(len(parts) / buckets, 1) if buckets else 0
        done += sum(count if name in whole else count * shares.get(name, 0) for name, count in items.items())
        return len(parts) + len(made), done / max(rows, 1)

    return buckets + len(items), 0, probe
