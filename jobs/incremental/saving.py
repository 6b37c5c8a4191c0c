"""Store a build of an incremental run, so that the next run can start from it."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex.jobs.building.full import Result
from rocketmq_reindex.jobs.building.manifest import path_of
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.incremental import carrying, last_build
from rocketmq_reindex.jobs.incremental.before import Before
from rocketmq_reindex.jobs.incremental.last_build import IndexFile, LastBuild
from rocketmq_reindex.jobs.publishing.output import MANIFEST
from rocketmq_reindex.jobs.publishing.parts import entries, joined
from rocketmq_reindex.jobs.publishing.whole_file import copy_whole
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore
from rocketmq_reindex.udfs.staging import StagingFolder

REPEATED: Final = (
    "bytes",
    "records",
    "units",
    "items",
    "tag_items",
    "files",
    "damage",
    "decisions",
    "warnings",
    "about",
    "exit",
)
"""fields of the summary that a run repeats when it finds nothing new"""


def save(
    store: ScanStore, staging: StagingFolder, before: Before, draft: LastBuild, result: Result, prints: list[str], kept: int,
    summary: Summary,
) -> tuple[LastBuild, bool]:  # fmt: skip
    """Store the build, and return it with whether DIR holds the same one already.

    ``draft`` has what it was made from; ``prints`` are the fingerprints of its IndexFiles; ``kept`` is how many files it took
    from the build before.
    """
    manifest = files.join(staging.tree, MANIFEST)
    last, digest = before.last, file_digest(manifest)
    count = result.written.queue_files + len(result.written.index)
    is_same = last is not None and digest == last.digest
    stands = is_same and kept == count and _is_whole(before)
    # The times of the files that stand in DIR, or of those that are to be published: a rename leaves them alone.
    built = before.files_of(before.folder if stands else staging.tree, count)
    own = [entry | {"modified": time} for entry, time in zip(result.entries, built.times(result.entries), strict=True)]
    index = [entry for entry in own if entry["path"].startswith("index/")]
    build = dataclasses.replace(
        draft,
        digest=digest,
        before="" if last is None else last.before if is_same else last.digest,
        index=[
            IndexFile(found, entry["path"], vars(made) | entry)
            for found, entry, made in zip(prints, index, result.written.index, strict=True)
        ] if index else [],
        own=[entry for entry in own if not entry["path"].startswith("index/")],
        summary={name: getattr(summary, name) for name in REPEATED} | {"exit": 3 if summary.lost else 0},
    )  # fmt: skip
    lines = (line for _, line in heapq.merge(*(entries(part, path_of) for part in result.parts)))
    _write_lines(store, f"{digest}.files", carrying.timed_lines(lines, built))
    _write_lines(store, f"{digest}.odd", carrying.odd_lines(result.order))
    if not staging.build:
        copy_whole(store.temporary, manifest, files.join(store.builds, f"{digest}{last_build.MANIFEST_COPY}"))
    build.save(store)
    files.sync(store.root)
    return build, stands


def _is_whole(before: Before) -> bool:
    """Whether of the build before the driver's own files are whole, and nothing else lies in DIR."""
    last = before.last
    return last is not None and not any(before.damaged(last.own)) and not before.has_other_files(last)


def _write_lines(store: ScanStore, name: str, lines: Iterator[bytes]) -> None:
    path = files.join(store.builds, name)
    files.write_bytes(store.temporary, path, joined(line + b"\n" for line in lines))
