"""The steps of a build that depend on where it starts: a full build starts from the log alone, and writes all files."""

from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import summary as building_summary
from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.inputs import check_begins
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import check_free, scan_settings
from rocketmq_reindex.jobs.building.scanning import Scan, ScanMemory
from rocketmq_reindex.jobs.engines.engine import beside
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.jobs.watching.progress import Probe, Reporter
from rocketmq_reindex.storage_format.index.layout import IndexFilePlan, plan_index_files
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import Reroute
from rocketmq_reindex.udfs.staging import Positions, StagingFolder
from rocketmq_reindex.udfs.write.index import IndexFileResult, WriteIndex
from rocketmq_reindex.udfs.write.queues import FilesResult, WriteBatches, WriteExtended, WriteQueues, write_empty_files

# ---------------------------------------------------------------------------------------------------------------------- writing
# Write ConsumeQueue files and IndexFiles into the staging tree, both kinds at the same time.


@dataclass
class WrittenFiles:
    """What the writers made: parts of the manifest, and what is known of each IndexFile."""

    parts: list[str] = field(default_factory=list)
    queue_files: int = 0
    units: int = 0
    index: list[IndexFileResult] = field(default_factory=list)

    def add(self, result: FilesResult) -> None:
        """Take in the ConsumeQueue files of one part."""
        self.parts.append(result.part)
        self.queue_files += result.files
        self.units += result.units


def write_queues(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order) -> list[FilesResult]:
    """Write the files of plain ConsumeQueues from the cells of the ``accepted`` ranges. Return their results."""
    if not any(summary.units for summary in accepted):
        return []
    staging, reroute = scan.staging, None
    if settings.cq_ext != "none" and settings.filters is not None:
        sizes = settings.cq_file_size, settings.cq_ext_file_size
        extend = WriteExtended(staging, *sizes, order.placements, settings.filters, settings.light_in_files)
        results = FilesResult.read(scan.engine.reduce(handover.EXTENDED, scan.left_out(accepted), None, extend))
        return [*results, write_empty_files(staging, settings.cq_file_size, order.opened)] if order.opened else results
    if order.placements:
        reroute = Reroute(order.placements, scan.task.units_per_file, scan.task.keys)
    writer = WriteQueues(staging, settings.cq_file_size, settings.light_in_files)
    results = FilesResult.read(scan.engine.reduce(handover.UNITS, scan.left_out(accepted), reroute, writer))
    return [*results, write_empty_files(staging, settings.cq_file_size, order.opened)] if order.opened else results


def write_batches(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order) -> list[FilesResult]:
    """Write the files of batch ConsumeQueues from the cells of the ``accepted`` ranges. Return their results."""
    if not any(summary.batch_units for summary in accepted):
        return []
    writer = WriteBatches(scan.staging, settings.batch_cq_file_size, order.batches, settings.queue_order == "broker")
    return FilesResult.read(scan.engine.reduce(handover.BATCHES, scan.left_out(accepted), None, writer))


def write_index(scan: Scan, settings: BuildSettings, index_plans: list[IndexFilePlan]) -> list[IndexFileResult]:
    """Write the planned IndexFiles. Return them by number."""
    if not index_plans:
        return []
    path = handover.write_plan(scan.staging, "index", index_plans)
    seal = settings.checkpoint == "safe"
    writer = WriteIndex(scan.staging, path, settings.hash_slots, settings.index_items, settings.broker_version, seal)
    results = IndexFileResult.read(scan.engine.numbers(writer, len(index_plans)))
    return sorted(results, key=lambda result: result.number)


def write_both(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order, index_plans: list[IndexFilePlan],
    *, queues: bool = True,
) -> WrittenFiles:  # fmt: skip
    """Write both kinds of files at the same time, as far as the settings ask for them. Return what was written.

    ``queues``: whether there is any ConsumeQueue file to write.
    """
    written = WrittenFiles()
    with beside(scan.engine, "write") as pool:
        index = pool.submit(write_index, scan, settings, index_plans if "index" in settings.only else [])
        if settings.makes_files and queues:
            for result in write_queues(scan, settings, accepted, order) + write_batches(scan, settings, accepted, order):
                written.add(result)
        written.index = index.result()
    return written


def name_index_files(staging: StagingFolder, written: WrittenFiles, leftovers: Leftovers) -> list[dict[str, Any]]:
    """Name each IndexFile after the phy_offset of the record that made it, but at least the name before + 1.

    Return the entries of the manifest. Where a rename would be a copy, files stay where they are, and their entries say where
    (``at``). ``leftovers`` learns of files of failed attempts that could not be removed.
    """
    entries, name = [], -1
    if staging.build:
        # Attempts that failed left files as well.
        made = {files.base(result.made) for result in written.index}
        leftovers.remove_all(files.join(staging.made, name) for name in set(files.names(staging.made)) - made)
    elif written.index:
        files.make_folder(files.join(staging.tree, "index"))
    for result in written.index:
        name = max(result.maker, name + 1)
        relative = f"index/{name:017d}"
        entry: dict[str, Any] = {
            "path": relative,
            "size": result.size,
            "used": result.used,
            "digest": result.digest,
            "header": result.header,
        }
        if staging.build:
            entry["at"] = f"index/{files.base(result.made)}"
        else:
            files.rename(result.made, files.join(staging.tree, relative))
        entries.append(entry)
    return entries


# ------------------------------------------------------------------------------------------------------------------------- full


@dataclass(frozen=True)
class BuildOutput:
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
    left_out = "they are left out, and a broker dispatches those that its group commits"
    """what becomes of entries of DLedger that are not committed"""

    def __init__(self, settings: BuildSettings, log: Commitlog) -> None:
        self.settings, self.log = settings, log
        self.warnings = building_summary.Warnings()
        """of these steps, also where one of them refuses the log"""
        self.entries = list[dict[str, Any]]()
        """entries of the manifest: of files that only these steps write"""
        self.figures = dict[str, Any]()
        """fields of the result that only these steps fill, by name"""

    def nothing_new(self) -> tuple[list[str], dict[str, Any] | None]:
        """Return notes and, where DIR holds this build already, the fields of that one's result. DIR's lock is held."""
        return [], None

    def check_room(
        self, staging: StagingFolder, accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None,
        extra_units: int = 0,
    ) -> None:  # fmt: skip
        """Raise InputError when the output cannot fit, by a sample of the log, or by the counts of the ``accepted`` ranges."""
        check_free(self.settings, scan_settings(self.settings), self.log, staging.root, accepted, plans, extra_units)

    def staged(self, staging: StagingFolder) -> None:
        """The staging folder is there; nothing has been scanned yet. Raises InputError when the run cannot continue."""

    def check_begins(self, segments: list[Segment], chain: Chain) -> None:
        """Raise InputError or RefusedError where the first segment is none of RocketMQ."""
        check_begins(self.settings, segments, chain)

    def mended(
        self, scan: Scan, segments: list[Segment], chain: Chain, reporter: Reporter
    ) -> tuple[list[Segment], Chain]:  # fmt: skip
        """Return the segments and the chain that are built from; a repair mends the log first."""
        _ = scan, reporter
        return segments, chain

    def plan_index(self, accepted: list[RangeSummary]) -> list[IndexFilePlan]:
        """Return which items each IndexFile holds."""
        return plan_index_files(accepted, self.settings.index_items)

    def write(self, scan: Scan, accepted: list[RangeSummary], order: Order, plans: list[IndexFilePlan]) -> WrittenFiles:
        """Write ConsumeQueue files and IndexFiles into the staging folder. Return what was written."""
        return write_both(scan, self.settings, accepted, order, plans)

    def save(
        self, staging: StagingFolder, build_output: BuildOutput, result: building_summary.BuildResult, has_rows: bool
    ) -> tuple[bool, dict[str, Any] | None]:
        """Keep what a later run needs, with fields of ``result``. Return whether DIR holds this build already, so that nothing
        is published, and of an incremental run what was read and kept.

        ``has_rows``: rows of the build go into the Delta tables once it is published.
        """
        _ = staging, build_output, result, has_rows
        return False, None

    def published(self, staging: StagingFolder, leftovers: Leftovers) -> None:
        """The build has been published. ``leftovers`` removes what no build needs any longer."""

    def rows_written(self, leftovers: Leftovers) -> None:
        """All rows of the published build are in the Delta tables. ``leftovers`` removes what said that they are missing."""


def to_write(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], plans: list[IndexFilePlan]
) -> tuple[int, int, Probe]:
    """Return how many buckets and IndexFiles are to be written, 0 for bytes, and a probe.

    The share that is done is that of rows: of units by buckets, taken as equal, of items by IndexFiles and within them.
    """
    buckets = len(set(scan.task.keys)) if settings.makes_files else 0
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
