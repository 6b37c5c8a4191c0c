"""``rmq-reindex fetch BUILD --to DIR``: lay a build out in a broker's store, checked, and in one go as a broker sees it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building import unclean_stop
from rocketmq_reindex.jobs.building.store_sizes import other_sizes
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.fetching.build import FoundBuild, find_build
from rocketmq_reindex.jobs.fetching.files import fetch_all, part_of
from rocketmq_reindex.jobs.fetching.swap import PARTS, Swap
from rocketmq_reindex.jobs.publishing.layout import TOPICS
from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.jobs.store.lock import store_locked
from rocketmq_reindex.storage_format.errors import InputError, ReindexError, UsageError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files

THREADS = 8


@dataclass
class Fetched:
    """What was done, as --json tells it; bytes are those that were read."""

    build: str = ""
    to: str = ""
    files: int = 0
    bytes: int = 0
    size: int = 0
    swapped: list[str] = field(default_factory=list)
    previous: dict[str, str] = field(default_factory=dict)
    finished_earlier: str | None = None
    """the build, by its manifest's digest, of a fetch that died in its swap and was finished first"""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None


def fetch_parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "rmq-reindex fetch",
        "Lay a build out in a broker's store: check every file, then put it in the place of the store's own.",
    )
    add = parser.add_argument
    add("build", metavar="BUILD", help="folder or URI that was --out of a build, or one build below it")
    add("--to", required=True, metavar="DIR", help="the store (storePathRootDir): DIR/commitlog is never touched")
    add("--topics", action="store_true", help="put config/topics.json in even where the store has one of its own")
    add("--threads", type=int, default=THREADS, metavar="N", help=f"files fetched at once ({THREADS})")
    add("--dry-run", action="store_true", help="say what would be fetched and swapped, and do nothing")
    add("--json", action="store_true", help="the summary on stdout as one JSON object")
    return parser


def fetch(arguments: Sequence[str]) -> int:
    """One fetch; returns the exit status."""
    told, lines = Fetched(), list[str]()
    began = time.monotonic()
    interrupts = Interrupts()
    try:
        given = fetch_parser().parse_args(arguments)
        if not 1 <= given.threads <= 256:
            raise UsageError(f"--threads {given.threads}: take 1 to 256")
        with interrupts:
            lines = _Fetch(given, told).run()
    except ReindexError as error:
        told.exit, told.error = error.exit_status, str(error)
    except KeyboardInterrupt:
        told.exit, told.error = 1, "interrupted: run it again to go on"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "build or store"
        told.exit, told.error = 1, f"{where}: {escape(error.strerror or str(error))}: run it again to go on"
    told.seconds = time.monotonic() - began
    for note in told.notes:
        print(f"note: {note}", file=sys.stderr)
    if told.error:
        print(f"error: {told.error}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps(dataclasses.asdict(told)))
    elif not told.error:
        print("\n".join(lines))
    return told.exit


class _Fetch:
    """One run, from places to swap."""

    def __init__(self, given: argparse.Namespace, told: Fetched) -> None:
        self._given, self._told = given, told
        self._place = _checked("BUILD", given.build)
        store = _checked("--to", given.to)
        if files.no_rename(store):
            raise UsageError(f"--to {escape(given.to)}: name a folder on a disk, as a broker has it")
        self._store = os.path.realpath(store)
        told.build, told.to = redacted(self._place), self._store

    def run(self) -> list[str]:
        given, told, store = self._given, self._told, self._store
        if files.overlap(self._place, store):
            raise InputError(
                f"--to {escape(given.to)}: lies inside {escape(given.build)} or around it: name a store apart from it"
            )
        if not os.path.isdir(store):
            raise InputError(f"--to {escape(given.to)}: is not a folder: make it first")
        with store_locked(store, make=not given.dry_run):
            swap = Swap(store)
            journal = swap.pending()
            if journal and given.dry_run:
                return [f"would first finish an earlier fetch that was cut short: {', '.join(journal['parts'])}"]
            if journal:
                told.previous = swap.finish(journal)
                told.swapped, told.finished_earlier = journal["parts"], journal["build"]
            build = find_build(self._place)
            if journal and journal["build"] == build.name:
                return [f"finished an earlier fetch of this build: {', '.join(told.swapped)}", *self._kept()]
            parts = self._parts(build)
            wanted = [file for file in build.wanted if part_of(file.path) in parts]
            count, size = len(wanted), sum(file.used for file in wanted)
            swap.check(parts)
            self._check(build, size, swap.held())
            self._check_abort(build, parts)
            told.notes += other_sizes(store, parts, build.sizes)
            told.files, told.size = count, sum(file.size for file in wanted)
            if given.dry_run:
                would = {part: swap.previous(part) for part in parts if os.path.lexists(os.path.join(store, part))}
                told.bytes = size
                kept = [f"would keep  {part} as {name}" for part, name in would.items()]
                return [
                    f"would fetch {counted(count, 'file')}, {counted(told.bytes, 'byte')}, from {escape(build.folder)}",
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
            told.previous |= swap.finish(journal)
            told.swapped = journal["parts"]
            return [
                f"fetched {counted(count, 'file')}, {counted(told.bytes, 'byte')}, {told.size:,} as they lie in a store",
                f"swapped {', '.join(told.swapped)} in {escape(store)}",
                *self._kept(),
            ]

    def _read(self, count: int) -> None:
        self._told.bytes += count

    def _kept(self) -> list[str]:
        return [f"kept    {part} as {name}: remove it when the broker is well" for part, name in self._told.previous.items()]

    def _parts(self, build: FoundBuild) -> list[str]:
        parts = [part for part in PARTS if part in build.parts]
        if TOPICS in parts and not self._given.topics and os.path.lexists(os.path.join(self._store, TOPICS)):
            parts.remove(TOPICS)
            self._told.notes.append(f"{TOPICS}: the store's own stays, the draft is left out: --topics puts it in")
        if "consumequeue" in parts and "batchconsumequeue" not in parts and os.path.lexists(f"{self._store}/batchconsumequeue"):
            self._told.notes.append("batchconsumequeue: the store's own stays, the build has none")
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


def _checked(option: str, place: str) -> str:
    if not place:
        # A variable that is not set: as a path it would be the working folder.
        raise UsageError(f"{option}: is empty: name a folder")
    try:
        return files.absolute(files.checked(place))
    except InputError as error:
        raise UsageError(f"{option} {error}") from None
