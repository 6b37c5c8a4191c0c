"""The last files of a build: a draft of config/topics.json, names of IndexFiles, the checkpoint, the manifest."""

import dataclasses
import heapq
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import full
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import make_checkpoint
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.store_signs import vouched
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.publishing.layout import TOPICS, Leftovers
from rocketmq_reindex.jobs.publishing.output import entries, few_parts, joined
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.checkpoints import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.digest import CHUNK, KIND, new_digest
from rocketmq_reindex.storage_format.index.layout import IndexFilePlan
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.storage_format.topics import QUEUES_MAX, data_version
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.scan.ranges import NAMES_MAX, DraftTopics, TopicsResult
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.version import __version__

# --------------------------------------------------------------------------------------------------------------------- drafting
# Write DIR/config/topics.json: a draft of the broker's topic configuration, so that a bare log becomes a store that boots.


def write_topics(
    scan: Scan, settings: BuildSettings, accepted: list[RangeSummary]
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Draft the file from the accepted ranges. Return its entry for the manifest, and warnings."""
    staging = scan.staging
    drafted: list[TopicsResult] = []
    if any(summary.unit_records for summary in accepted):
        reducer = DraftTopics(staging, frozenset(settings.batch_topics))
        drafted = TopicsResult.read(scan.engine.reduce(handover.TOPICS, scan.left_out(accepted), None, reducer))
    warnings = list[str]()
    if any(result.delayed for result in drafted) and not settings.write_delay:
        warnings.append(
            "delayed messages: a broker without config/delayOffset.json delivers all of them in the log again: keep that file"
        )
    warnings += _warnings(drafted)
    newest = next((summary.last_time for summary in reversed(accepted) if summary.records), 0)
    digest, size = new_digest([]), 0

    def text() -> Iterator[bytes]:
        nonlocal size
        for piece in _text(data_version(newest), [result.part for result in drafted]):
            digest.update(piece)
            size += len(piece)
            yield piece

    files.make_folder(files.join(staging.tree, layouts.CONFIG))
    files.write_bytes(staging.temporary, files.join(staging.tree, TOPICS), text())
    return {"path": TOPICS, "size": size, "used": size, "digest": digest.digest().hex()}, warnings


def _text(version: str, parts: list[str]) -> Iterator[bytes]:
    """Yield the lines of sorted parts as one JSON object, laid out as RocketMQ does."""
    yield f'{{\n\t"dataVersion":{version},\n\t"topicConfigTable":{{'.encode()
    separator = "\n\t\t"
    for _, entry in heapq.merge(*(_lines(part) for part in parts)):
        yield f"{separator}{entry}".encode()
        separator = ",\n\t\t"
    yield b"\n\t}\n}\n"


def _lines(part: str) -> Iterator[tuple[str, str]]:
    for line in files.lines(part):
        name, entry = json.loads(line)
        yield name, entry


def _warnings(drafted: list[TopicsResult]) -> Iterator[str]:
    refused = sum(result.refused for result in drafted)
    if refused:
        names = sorted(name for result in drafted for name in result.refused_names)[:NAMES_MAX]
        yield (
            f"{TOPICS}: {counted(refused, 'topic')} left out, whose names RocketMQ's TopicValidator refuses: "
            + ", ".join(escape(name, 80) for name in names)
        )
    for name in sorted(name for result in drafted for name in result.many)[:NAMES_MAX]:
        yield f"{TOPICS}: topic {escape(name)}: queue ids from {QUEUES_MAX:,} on are left out: give it more if they are right"


# --------------------------------------------------------------------------------------------------------------------- manifest
# reindex.json: what was read, by which settings, what was decided, and every file written with its digest.
#
# The same input and settings give the same bytes, whatever the partitioning: it has no times, folders or tasks. The list of
# files comes in sorted parts from executors and is merged line by line.

_PATH: Final = b'{"path": "'
_COUNTS: Final = ("records", "units", "items", "tag_items")


def inputs(log: Commitlog, summaries: Iterable[RangeSummary], until: int) -> list[dict[str, Any]]:
    """Return each segment with its size and the digests of its chunks; null for a chunk that ends after ``until``."""
    digests = {
        int(start): digest
        for summary in summaries
        for start, digest in summary.digests.items()
        if int(start) + CHUNK <= until or until == layouts.INT64_MAX
    }
    return [
        {
            "segment": segment.name,
            "size": segment.data_end - segment.start,
            "digests": [digests.get(start) for start in range(segment.start, segment.data_end, CHUNK)],
        }
        for segment in log.segments
    ]


def path_of(line: bytes) -> str:
    """Return the path in a line of a part (``udfs.write.queues.entry_line``)."""
    path, _, _ = line.removeprefix(_PATH).partition(b'"')
    # Only text with something escaped needs a parser.
    return str(json.loads(line.partition(b"\t")[0])["path"]) if b"\\" in path else path.decode()


def write(
    staging: StagingFolder, settings: BuildSettings, log: Commitlog, samples: dict[str, Any], result: BuildResult,
    summaries: Iterable[RangeSummary], checkpoint: dict[str, int] | None, parts: list[str], own_entries: list[dict[str, Any]],
    until: int,
) -> list[str]:  # fmt: skip
    """Write the manifest into the tree; ``parts`` are files of sorted lines, ``own_entries`` those that the driver made.

    ``samples`` are those of ``log_samples``. ``until`` is the offset up to which the log was read for certain, whatever the
    ranges. Return the parts that are left: the same lines in a few files.
    """
    head = {
        "format": 2,
        "version": __version__,
        "digest": KIND,
        "settings": settings.for_manifest(),
        "inputs": inputs(log, summaries, until),
        "log": samples,
        "counts": {name: getattr(result, name) for name in _COUNTS} | result.files,
        "checkpoint": checkpoint,
        "damage": sorted(result.damage, key=lambda d: (d["offset"], d["reason"])),
        "decisions": result.decisions,
        "warnings": result.warnings,
    } | result.parts_of_manifest()
    own = sorted((entry["path"], json.dumps(entry).encode()) for entry in own_entries)

    def text() -> Iterator[bytes]:
        yield json.dumps(head, indent=1).encode()[:-2] + b',\n "files": ['
        separator = b"\n  "
        for _, line in heapq.merge(*(entries(part, path_of) for part in few), own):
            yield separator + line.partition(b"\t")[0]
            separator = b",\n  "
        yield b"\n ]\n}\n"

    few = few_parts(staging, parts, path_of)
    files.write_bytes(staging.temporary, files.join(staging.tree, "reindex.json"), joined(text()))
    return few


# -------------------------------------------------------------------------------------------------------------------- finishing
# The last files of a build but for the manifest, which has their warnings.


def finish(
    scan: Scan, settings: BuildSettings, log: Commitlog, accepted: list[RangeSummary], plans: list[IndexFilePlan],
    written: full.WrittenFiles, leftovers: Leftovers,
) -> tuple[list[dict[str, Any]], dict[str, int] | None, list[str]]:  # fmt: skip
    """Name the IndexFiles and write the checkpoint. ``leftovers`` learns of what could not be removed.

    Return their entries for the manifest, the fields of the checkpoint, and warnings.
    """
    staging = scan.staging
    for part, wanted in ((layouts.QUEUES, settings.makes_files), (layouts.INDEX, layouts.INDEX in settings.only)):
        if wanted:
            files.make_folder(files.join(staging.tree, part))
    if settings.cq_ext != "none" and settings.filters is not None:
        files.make_folder(files.join(staging.tree, layouts.EXT_QUEUES))
    entries = full.name_index_files(staging, written, leftovers)
    if layouts.CHECKPOINT not in settings.only:
        return entries, None, []
    checkpoint, warnings = vouched(settings, make_checkpoint(settings, log, accepted, plans))
    data, used = checkpoint.to_bytes(), CHECKPOINT_LAYOUT.size
    files.write_bytes(staging.temporary, files.join(staging.tree, layouts.CHECKPOINT), [data])
    digest = new_digest([data[:used]]).digest().hex()
    entries.append({"path": layouts.CHECKPOINT, "size": len(data), "used": used, "digest": digest})
    return entries, dataclasses.asdict(checkpoint), warnings
