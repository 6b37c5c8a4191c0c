"""Write ConsumeQueue files and IndexFiles into the staging tree, both kinds at the same time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.engines.beside import beside
from rocketmq_reindex.jobs.publishing.leftovers import Leftovers
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs import files, plans, schemas
from rocketmq_reindex.udfs.order.reroute import Reroute
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.batches import WriteBatches
from rocketmq_reindex.udfs.write.index import IndexFileResult, WriteIndex
from rocketmq_reindex.udfs.write.queue_files import FilesResult
from rocketmq_reindex.udfs.write.queues import WriteQueues, write_empty_files


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
    """Write the files of plain ConsumeQueues from the cells of the ``accepted`` ranges."""
    if not any(summary.units for summary in accepted):
        return []
    staging, reroute = scan.staging, None
    if order.placements:
        reroute = Reroute(order.placements, scan.task.units_per_file, scan.task.keys)
    writer = WriteQueues(staging, settings.cq_file_size)
    found = FilesResult.read(scan.engine.reduce(schemas.UNITS, scan.left_out(accepted), reroute, writer))
    return [*found, write_empty_files(staging, settings.cq_file_size, order.opened)] if order.opened else found


def write_batches(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order) -> list[FilesResult]:
    """Write the files of batch ConsumeQueues from the cells of the ``accepted`` ranges."""
    if not any(summary.batch_units for summary in accepted):
        return []
    writer = WriteBatches(scan.staging, settings.batch_cq_file_size, order.batches, settings.queue_order == "broker")
    return FilesResult.read(scan.engine.reduce(schemas.BATCHES, scan.left_out(accepted), None, writer))


def write_index(scan: Scan, settings: BuildSettings, index_plans: list[IndexFilePlan]) -> list[IndexFileResult]:
    """Write the planned IndexFiles; returns them by number."""
    if not index_plans:
        return []
    path = plans.write_plan(scan.staging, "index", index_plans)
    seal = settings.checkpoint == "safe"
    writer = WriteIndex(scan.staging, path, settings.hash_slots, settings.index_items, settings.broker_version, seal)
    found = IndexFileResult.read(scan.engine.numbers(writer, len(index_plans)))
    return sorted(found, key=lambda result: result.number)


def write_both(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order, index_plans: list[IndexFilePlan],
    *, queues: bool = True,
) -> WrittenFiles:  # fmt: skip
    """Write both kinds of files at the same time, as far as the settings ask for them.

    ``queues``: whether there is any ConsumeQueue file to write.
    """
    written = WrittenFiles()
    with beside(scan.engine, "write") as pool:
        index = pool.submit(write_index, scan, settings, index_plans if "index" in settings.only else [])
        if "consumequeue" in settings.only and queues:
            for result in write_queues(scan, settings, accepted, order) + write_batches(scan, settings, accepted, order):
                written.add(result)
        written.index = index.result()
    return written


def name_index_files(staging: StagingFolder, written: WrittenFiles, left: Leftovers) -> list[dict[str, Any]]:
    """Name each IndexFile after the phy_offset of the record that made it, but at least the name before + 1.

    Returns the entries of the manifest. Where a rename would be a copy, files stay where they are, and their entries say where
    (``at``). ``left`` learns of files of failed attempts that could not be removed.
    """
    entries, name = [], -1
    if staging.build:
        # Attempts that failed left files as well.
        made = {files.base(result.made) for result in written.index}
        left.remove_all(files.join(staging.made, name) for name in set(files.names(staging.made)) - made)
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
