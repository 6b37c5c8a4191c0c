"""Write ConsumeQueue files and IndexFiles into the staging tree, both kinds at the same time."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.order.reroute import Reroute
from rocketmq_reindex.udfs.stage import Stage
from rocketmq_reindex.udfs.write.batches import WriteBatches
from rocketmq_reindex.udfs.write.index import WriteIndex
from rocketmq_reindex.udfs.write.queues import WriteQueues, write_empty_files


@dataclass
class Written:
    """Results of the writers: parts of the manifest, and what is known of each IndexFile."""

    parts: list[str] = field(default_factory=list)
    queue_files: int = 0
    units: int = 0
    index: list[dict[str, Any]] = field(default_factory=list)


def write_queues(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order) -> list[dict[str, Any]]:
    """Assemble the files from the cells; one word a task."""
    if not any(summary.units for summary in accepted):
        return []
    stage, reroute = scan.stage, None
    if order.placements:
        reroute = Reroute(order.placements, scan.task.units_per_file, scan.task.keys)
    writer = WriteQueues(stage, settings.cq_file_size)
    words = scan.engine.reduce(schemas.UNITS, scan.left_out(accepted), reroute, writer)
    if order.opened:
        words = [*words, write_empty_files(stage, settings.cq_file_size, order.opened)]
    return [json.loads(word) for word in words]


def write_batches(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order) -> list[dict[str, Any]]:
    """The files of batch ConsumeQueues; one word a task."""
    if not any(summary.batch_units for summary in accepted):
        return []
    writer = WriteBatches(scan.stage, settings.batch_cq_file_size, order.batches, settings.queue_order == "broker")
    words = scan.engine.reduce(schemas.BATCHES, scan.left_out(accepted), None, writer)
    return [json.loads(word) for word in words]


def write_index(scan: Scan, settings: BuildSettings, plans: list[IndexFilePlan]) -> list[dict[str, Any]]:
    """Write the IndexFiles under their numbers; one word each, in order."""
    if not plans:
        return []
    stage = scan.stage
    path = files.join(stage.plans, "index")
    files.write_bytes(stage.temporary, path, [json.dumps([dataclasses.asdict(plan) for plan in plans]).encode()])
    seal = settings.checkpoint == "safe"
    writer = WriteIndex(stage, path, settings.hash_slots, settings.index_items, settings.broker_version, seal)
    words = [json.loads(word) for word in scan.engine.numbers(writer, len(plans))]
    return sorted(words, key=lambda word: int(word["number"]))


def write_both(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], order: Order, plans: list[IndexFilePlan],
    *, queues: bool = True,
) -> Written:  # fmt: skip
    """Both kinds as the settings ask for, side by side. ``queues``: whether there is any ConsumeQueue file to write."""
    written = Written()
    with ThreadPoolExecutor(2, thread_name_prefix="write") as pool:
        index = pool.submit(write_index, scan, settings, plans if "index" in settings.only else [])
        if "consumequeue" in settings.only and queues:
            words = write_queues(scan, settings, accepted, order) + write_batches(scan, settings, accepted, order)
            for word in words:
                written.parts.append(word["part"])
                written.queue_files += word["files"]
                written.units += word["units"]
        written.index = index.result()
    return written


def name_index_files(stage: Stage, written: Written) -> list[dict[str, Any]]:
    """Give IndexFiles their names: the offset of the record that made the file, at least the name before + 1.

    Where renaming is copying they stay where they are, and their entries say where (``at``).
    """
    entries, name = [], -1
    if stage.build:
        # Of attempts that came to nothing.
        told = {files.base(word["made"]) for word in written.index}
        for left in set(files.names(stage.made)) - told:
            files.remove_tree(files.join(stage.made, left))
    elif written.index:
        files.make_folder(files.join(stage.tree, "index"))
    for word in written.index:
        name = max(int(word["maker"]), name + 1)
        relative = f"index/{name:017d}"
        entry = {
            "path": relative,
            "size": word["size"],
            "used": word["used"],
            "digest": word["digest"],
            "header": word["header"],
        }
        if stage.build:
            entry["at"] = f"index/{files.base(word['made'])}"
        else:
            files.rename(str(word["made"]), files.join(stage.tree, relative))
        entries.append(entry)
    return entries
