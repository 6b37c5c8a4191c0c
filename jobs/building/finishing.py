"""The last files of a build: names of IndexFiles, the checkpoint, the manifest."""

from __future__ import annotations

import dataclasses
from typing import Any

from rocketmq_reindex.jobs.building import manifest, writing
from rocketmq_reindex.jobs.building.log_samples import log_samples
from rocketmq_reindex.jobs.building.planning import make_checkpoint
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.building.unclean_stop import vouched
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index.plan import IndexFilePlan
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder


def finish(
    scan: Scan, settings: BuildSettings, log: Commitlog, segments: list[Segment], accepted: list[RangeSummary],
    plans: list[IndexFilePlan], written: writing.WrittenFiles, until: int, more: list[dict[str, Any]], summary: Summary,
) -> tuple[list[dict[str, Any]], list[str]]:  # fmt: skip
    """Write them into the tree of the staging folder; ``until`` is the offset up to which the log was read.

    ``segments`` are those that were built from: of a repair the new ones, not those of ``log``.

    Returns the driver's own entries of the manifest, ``more`` among them, and files with the other entries.
    """
    staging = scan.staging
    for part in ("consumequeue", "index"):
        if part in settings.only:
            files.make_folder(files.join(staging.tree, part))
    entries = [*more, *writing.name_index_files(staging, written, summary.left)]
    fields = None
    if "checkpoint" in settings.only:
        fields, entry = _write_checkpoint(staging, settings, log, accepted, plans, summary)
        entries.append(entry)
    summaries = scan.summaries.values()
    samples = log_samples(segments, accepted)
    parts = manifest.write(staging, settings, log, samples, summary, summaries, fields, written.parts, entries, until)
    return entries, parts


def _write_checkpoint(
    staging: StagingFolder, settings: BuildSettings, log: Commitlog, accepted: list[RangeSummary], plans: list[IndexFilePlan],
    summary: Summary,
) -> tuple[dict[str, int], dict[str, Any]]:  # fmt: skip
    """Returns the fields of the checkpoint, and its entry of the manifest."""
    checkpoint = vouched(settings, make_checkpoint(settings, log, accepted, plans), summary.warnings)
    data, used = checkpoint.to_bytes(), CHECKPOINT_LAYOUT.size
    files.write_bytes(staging.temporary, files.join(staging.tree, "checkpoint"), [data])
    digest = new_digest([data[:used]]).digest().hex()
    entry = {"path": "checkpoint", "size": len(data), "used": used, "digest": digest}
    return dataclasses.asdict(checkpoint), entry
