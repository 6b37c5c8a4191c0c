"""reindex.json: what was read, by which settings, what was decided, and every file written with its digest.

The same input and settings give the same bytes, whatever the partitioning: it has no times, folders or tasks. The
list of files comes in sorted parts from executors and is merged line by line.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rocketmq_reindex import __version__
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.publishing.parts import entries, few_parts, joined
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.digest import CHUNK, KIND
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

_PATH: Final = b'{"path": "'
_COUNTS: Final = ("records", "units", "items", "tag_items")


def inputs(log: Commitlog, summaries: Iterable[RangeSummary], until: int) -> list[dict[str, Any]]:
    """Return each segment with its size and the digests of its chunks; null for a chunk that ends after ``until``."""
    digests = {
        int(start): digest
        for summary in summaries
        for start, digest in summary.digests.items()
        if int(start) + CHUNK <= until or until == INT64_MAX
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
    """Return the path in a line of a part (``queue_files.entry_line``)."""
    path, _, _ = line.removeprefix(_PATH).partition(b'"')
    # Only text with something escaped needs a parser.
    return str(json.loads(line.partition(b"\t")[0])["path"]) if b"\\" in path else path.decode()


def write(
    staging: StagingFolder, settings: BuildSettings, log: Commitlog, samples: dict[str, Any], summary: Summary,
    summaries: Iterable[RangeSummary], checkpoint: dict[str, int] | None, parts: list[str], more: list[dict[str, Any]],
    until: int,
) -> list[str]:  # fmt: skip
    """Write the manifest into the tree; ``parts`` are files of sorted lines, ``more`` are entries of the driver's own.

    ``samples`` are those of ``log_samples``. ``until`` is the offset up to which the log was read for certain, whatever the
    ranges. Returns the parts that are left: the same lines in a few files.
    """
    head = {
        "format": 2,
        "version": __version__,
        "digest": KIND,
        "settings": settings.for_manifest(),
        "inputs": inputs(log, summaries, until),
        "log": samples,
        "counts": {name: getattr(summary, name) for name in _COUNTS} | summary.files,
        "checkpoint": checkpoint,
        "damage": sorted(summary.damage, key=lambda d: (d["offset"], d["reason"])),
        "decisions": summary.decisions,
        "warnings": summary.warnings,
    }
    if summary.repair is not None:
        head["repair"] = summary.repair
    if summary.delay is not None:
        head["delay"] = summary.delay
    own = sorted((entry["path"], json.dumps(entry).encode()) for entry in more)

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
