"""One fetch from beginning to end: find the build, check the store, bring the files, swap them in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building import unclean_stop
from rocketmq_reindex.jobs.building.store_sizes import other_sizes
from rocketmq_reindex.jobs.fetching.build import FoundBuild, find_build
from rocketmq_reindex.jobs.fetching.files import fetch_all, part_of
from rocketmq_reindex.jobs.fetching.options import FetchSettings
from rocketmq_reindex.jobs.fetching.swap import PARTS, Swap
from rocketmq_reindex.jobs.publishing.layout import TOPICS
from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.jobs.store.lock import store_locked
from rocketmq_reindex.jobs.store.rocksdb import check_swapped
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files


@dataclass
class FetchSummary:
    """What a fetch did, as --json prints it. ``bytes`` were read, ``size`` is what they take in a store."""

    build: str = ""
    to: str = ""
    files: int = 0
    bytes: int = 0
    size: int = 0
    swapped: list[str] = field(default_factory=list)
    previous: dict[str, str] = field(default_factory=dict)
    finished_earlier: str | None = None
    """the build, by its manifest's digest, of an earlier fetch that ended in its swap and was finished first"""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None


class Fetch:
    """State of one run; ``summary`` is true at every moment, also when the run fails."""

    def __init__(self, settings: FetchSettings, summary: FetchSummary) -> None:
        self._settings, self._summary = settings, summary
        self._build, self._store = settings.build, settings.store
        summary.build, summary.to = redacted(self._build), self._store

    def run(self) -> list[str]:
        """Fetch. Returns what was done, as lines for people. Raises InputError, OSError."""
        given, summary, store = self._settings, self._summary, self._store
        if files.overlap(self._build, store):
            raise InputError(
                f"--to {escape(given.to)}: lies inside {escape(given.named_build)} or around it: name a store apart from it"
            )
        if not os.path.isdir(store):
            raise InputError(f"--to {escape(given.to)}: is not a folder: make it first")
        with store_locked(store, make=not given.dry_run):
            swap = Swap(store)
            journal = swap.pending()
            if journal and given.dry_run:
                return [f"would first finish an earlier fetch that was cut short: {', '.join(journal['parts'])}"]
            if journal:
                summary.previous = swap.finish(journal)
                summary.swapped, summary.finished_earlier = journal["parts"], journal["build"]
            build = find_build(self._build)
            if journal and journal["build"] == build.name:
                return [f"finished an earlier fetch of this build: {', '.join(summary.swapped)}", *self._kept()]
            parts = self._parts(build)
            wanted = [file for file in build.wanted if part_of(file.path) in parts]
            count, size = len(wanted), sum(file.used for file in wanted)
            swap.check(parts)
            summary.notes += check_swapped(store, parts)
            self._check(build, size, swap.held())
            self._check_abort(build, parts)
            summary.notes += other_sizes(store, parts, build.sizes)
            summary.files, summary.size = count, sum(file.size for file in wanted)
            if given.dry_run:
                would = {part: swap.previous(part) for part in parts if os.path.lexists(os.path.join(store, part))}
                summary.bytes = size
                kept = [f"would keep  {part} as {name}" for part, name in would.items()]
                return [
                    f"would fetch {counted(count, 'file')}, {counted(summary.bytes, 'byte')}, from {escape(build.folder)}",
                    f"would swap  {', '.join(parts) or 'nothing'} in {escape(store)}",
                    *kept,
                ]
            swap.clear()
            try:
                fetch_all(build, parts, swap.new, swap.temporary, given.threads, self._read)
            except BaseException:
                swap.remove()
                raise
            journal = swap.begin(build.name, parts)
            summary.previous |= swap.finish(journal)
            summary.swapped = journal["parts"]
            return [
                f"fetched {counted(count, 'file')}, {counted(summary.bytes, 'byte')}, {summary.size:,} as they lie in a store",
                f"swapped {', '.join(summary.swapped)} in {escape(store)}",
                *self._kept(),
            ]

    def _read(self, count: int) -> None:
        self._summary.bytes += count

    def _kept(self) -> list[str]:
        return [f"kept    {part} as {name}: remove it when the broker is well" for part, name in self._summary.previous.items()]

    def _parts(self, build: FoundBuild) -> list[str]:
        parts = [part for part in PARTS if part in build.parts]
        if TOPICS in parts and not self._settings.topics and os.path.lexists(os.path.join(self._store, TOPICS)):
            parts.remove(TOPICS)
            self._summary.notes.append(f"{TOPICS}: the store's own stays, the draft is left out: --topics puts it in")
        if "consumequeue" in parts and "batchconsumequeue" not in parts and os.path.lexists(f"{self._store}/batchconsumequeue"):
            self._summary.notes.append("batchconsumequeue: the store's own stays, the build has none")
        return parts

    def _check(self, build: FoundBuild, size: int, held: int) -> None:
        """Raises InputError for a store with another log, or without room for ``size`` bytes; ``held`` are given back."""
        log = os.path.join(self._store, "commitlog")
        there = {name for name in os.listdir(log) if first_byte(name) is not None} if os.path.isdir(log) else set()
        if there and build.segments and not there & set(build.segments):
            raise InputError(
                f"{escape(log)}: has none of the segments that were read from {escape(build.segments[0])} on: take its own"
            )
        if there and not build.segments:
            raise InputError(
                f"{escape(log)}: has {counted(len(there), 'segment')}, the build was made from none: build again, from this log"
            )
        free = files.free_bytes(self._store)
        if free is not None and size > free + held:
            raise InputError(f"{escape(self._store)}: needs {size:,} bytes where {free + held:,} are free: make room")

    def _check_abort(self, build: FoundBuild, parts: list[str]) -> None:
        """Raises InputError where the broker would start by a checkpoint that says too much of what stays in the store."""
        old = unclean_stop.old_of(self._store, parts)
        new = read_times(files.join(build.folder, "checkpoint")) if old else None
        if old and new and unclean_stop.bounded(new, old, parts) != new:
            raise InputError(
                f"{escape(self._store)}: has a file abort, so its {' and '.join(unclean_stop.unbuilt(parts))} may lack what "
                "the broker had not written, and by the build's checkpoint it would stay lost: build again from this store, "
                "or with all parts"
            )
