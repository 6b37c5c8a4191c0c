"""One fetch from its options to its end: find the build, check the store, bring the files, swap them in."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import store_signs
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.fetching import (
    build as fetching_build,
    files as fetching_files,
    record as fetching_record,
    swap as fetching_swap,
)
from rocketmq_reindex.jobs.publishing.layout import CONSUMER_OFFSETS, DELAY_OFFSETS, TOPICS
from rocketmq_reindex.jobs.store.contents import SegmentFile
from rocketmq_reindex.jobs.store.owner import read_times, store_locked
from rocketmq_reindex.jobs.store.settings import (
    broker_config,
    check_is_store,
    check_no_store,
    check_swapped,
    roots_of,
    several,
)
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, listed, reason, redacted, shell

# ---------------------------------------------------------------------------------------------------------------------- options
# The options of ``rmq-reindex fetch``, and the settings that they make.

_THREADS_MAX: Final = 256


@dataclass(frozen=True)
class FetchSettings:
    """What is fetched, and where to. ``named_build`` and ``to`` are as given, ``build`` and ``store`` their absolute paths."""

    named_build: str
    to: str
    build: str
    store: str
    topics: bool = False
    """config/topics.json is put in also where the store has one"""
    threads: int = option_table.default_of("threads")
    keep: int = option_table.default_of("keep")
    """how many copies of each part stay"""
    dry_run: bool = False
    json: bool = False
    commitlogs: tuple[str, ...] = ()
    """where the broker's log lies; empty for ``commitlog`` in the store"""
    partial: bool = False
    """a build that leaves something out is laid out, too"""
    allow_empty: bool = False
    """a build of no record is laid out beside a log with records, too"""
    other_log: bool = False
    """nothing is asked of the log"""


def fetch_settings(given: Mapping[str, Any]) -> FetchSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    threads, keep = (given.get(name, option_table.default_of(name)) for name in ("threads", "keep"))
    if not 1 <= threads <= _THREADS_MAX:
        raise UsageError(f"--threads {threads}: take 1 to {_THREADS_MAX}")
    if keep < 0:
        raise UsageError(f"--keep {keep}: take 0 or more")
    build, store = _checked("BUILD", given["build"]), _checked("--to", given["to"])
    if files.no_rename(store):
        raise UsageError(f"--to {escape(given['to'])}: name a folder on a disk, as a broker has it")
    roots = tuple(_checked("--commitlog", root) for root in given.get("commitlogs", ()))
    places = {"named_build": given["build"], "build": build, "store": os.path.realpath(store), "commitlogs": roots}
    return FetchSettings(**{**given, **places})


parse_fetch: Final = options.reader("fetch", fetch_settings)
"""Return the settings that the words behind ``fetch`` make. Raises UsageError."""


def _checked(option: str, place: str) -> str:
    if not place:
        # A variable that is not set: as a path it would be the working folder.
        raise UsageError(f"{option}: is empty: name a folder")
    return files.absolute(place)


# ------------------------------------------------------------------------------------------------------------------------ fetch
# Find the build, check the store, bring the files, swap them in.


@dataclass(repr=False)
class FetchResult(Result):
    """What a fetch did. ``bytes`` were read, ``size`` is what they take in a store. With ``dry_run`` see ``text``."""

    build: str = ""
    to: str = ""
    files: int = 0
    bytes: int = 0
    size: int = 0
    swapped: list[str] = field(default_factory=list)
    """parts of the build that this run put into the store"""
    already_there: bool = False
    """the store held this very build, unchanged since a fetch laid it out: nothing was fetched"""
    previous: dict[str, str] = field(default_factory=dict)
    """where the store's own parts are kept, by part"""
    removed: list[str] = field(default_factory=list)
    """copies of earlier parts that were removed, by name in the store"""
    finished_earlier: str | None = None
    """the build of an earlier fetch that was cut short, and was finished first"""
    warnings: list[str] = field(default_factory=list)
    """what may keep a broker from what was laid out, or from the store"""
    notes: list[str] = field(default_factory=list)
    """what was left as it is"""
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None

    def stderr_lines(self) -> list[str]:
        warnings, notes = (f"warning: {text}" for text in self.warnings), (f"note: {text}" for text in self.notes)
        return [*warnings, *notes, *super().stderr_lines()]

    def _facts(self) -> dict[str, str]:
        return {
            "files": f"{self.files:,}",
            "bytes": f"{self.bytes:,}",
            "swapped": ", ".join(self.swapped) or "nothing",
            "warnings": str(len(self.warnings)),
        }


class Fetch:
    """State of one run; ``result`` is true at every moment, also when the run fails."""

    def __init__(self, settings: FetchSettings, result: FetchResult) -> None:
        self._settings, self._result = settings, result
        self._build, self._store = settings.build, settings.store
        result.build, result.to = redacted(self._build), self._store

    def run(self) -> list[str]:
        """Fetch. Return what was done, as lines for people. Raises InputError, OSError."""
        given, result, store = self._settings, self._result, self._store
        if files.overlap(self._build, store):
            raise InputError(
                f"--to {escape(given.to)}: lies inside {escape(given.named_build)} or around it: name a store apart from it"
            )
        if not os.path.isdir(store):
            raise InputError(f"--to {escape(given.to)}: is not a folder: make it first")
        check_is_store(store)
        with store_locked(store) as lock, contextlib.closing(fetching_swap.Swap(store)) as swap, fetching_record.shown():
            journal = swap.pending()
            if journal and given.dry_run:
                return [f"would first finish an earlier fetch that was cut short: {', '.join(journal['parts'])}"]
            if journal:
                lock()
                result.previous = self._finished(swap, journal)
                result.swapped, result.finished_earlier = journal["parts"], journal["build"]
            build, record = fetching_build.find_build(self._build), fetching_record.Record.read(store)
            result.notes += record.notes
            if layouts.COMMITLOG in build.own and given.other_log:
                result.warnings.append(
                    f"commitlog: the build is of a repair; its log stays in {escape(build.folder)}: put it in place by hand"
                )
            parts = self._parts(build, record)
            if parts and record.is_laid(store, parts, build.name):
                if given.commitlogs:
                    self._check_log(build, self._segments())
                return self._already(build, parts, swap, record)
            wanted = [file for file in build.wanted if fetching_files.part_of(file.path) in parts]
            count, size = len(wanted), sum(file.used for file in wanted)
            swap.check(parts)
            result.warnings += check_swapped(store, parts, build.database, alone=build.database_alone)
            segments = self._segments()
            fetching_files.check_wanted(build, store, segments, partial=given.partial, empty=given.allow_empty)
            self._check_log(build, segments)
            self._check_room(size, swap.held(), fetching_swap.copies(store, fetching_swap.PARTS, record))
            self._check_abort(build, parts)
            of_files = [part for part in parts if part != layouts.QUEUES or not build.database_alone]
            result.warnings += store_signs.other_sizes(store, of_files, build.sizes)
            if build.log.salvaged >= 0:
                result.warnings.append(
                    f"commitlog: the build passed over damage at offset {build.log.salvaged}: a broker whose start reads it "
                    f"cuts its log there, and loses what follows: ask before the start: "
                    f"{shell(['rmq-reindex', 'preflight', store])}"
                )
            result.files, result.size = count, sum(file.size for file in wanted)
            if given.dry_run:
                result.bytes = size
                return [
                    f"would fetch {counted(count, 'file')}, {counted(result.bytes, 'byte')}, from {escape(build.folder)}",
                    f"would swap  {', '.join(parts) or 'nothing'} in {escape(store)}",
                    *self._would_keep(parts, record),
                ]
            lock()
            swap.clear()
            try:
                with fetching_record.shown():  # before the handles are let go of
                    fetching_files.fetch_all(build, parts, swap.new, swap.temporary, given.threads, self._read)
            except BaseException:
                swap.remove()
                raise
            journal = swap.begin(build.name, parts)
            result.previous |= swap.finish(journal)
            result.swapped = journal["parts"]
            return [
                f"fetched {counted(count, 'file')}, {counted(result.bytes, 'byte')}, {result.size:,} as they lie in a store",
                f"swapped {', '.join(result.swapped)} in {escape(store)}",
                *self._pruned(swap),
            ]

    @staticmethod
    def _finished(swap: fetching_swap.Swap, journal: dict[str, Any]) -> dict[str, str]:
        """Finish an earlier fetch. Raises InputError where that cannot be done: to run it again would end the same."""
        try:
            with fetching_record.shown():
                return swap.finish(journal)
        except OSError as error:
            where = f"{escape(str(error.filename))}: " if error.filename else ""
            raise InputError(
                f"{escape(swap.folder)}: the fetch that it is of cannot be finished ({where}"
                f"{reason(error)}): mend that and run it again, or remove this folder and fetch anew"
            ) from None

    def _already(
        self, build: fetching_build.FoundBuild, parts: list[str], swap: fetching_swap.Swap, record: fetching_record.Record
    ) -> list[str]:
        """Return the lines for people where the store has the build: perhaps this run finished its swap."""
        if self._result.finished_earlier == build.name:
            return [f"finished an earlier fetch of this build: {', '.join(self._result.swapped)}", *self._pruned(swap)]
        self._result.already_there = True
        there = f"already there: {', '.join(parts)} of this build, unchanged since a fetch laid them out"
        if self._settings.dry_run:
            names, _ = fetching_swap.surplus_copies(self._store, fetching_swap.PARTS, record, self._settings.keep)
            return [there, *(f"would remove {escape(name)}" for name in names)]
        return [there, *self._pruned(swap)]

    def _would_keep(self, parts: list[str], record: fetching_record.Record) -> list[str]:
        """Return what a run would keep of the store's own parts, and which copies of earlier ones it would remove."""
        store, keep = self._store, self._settings.keep
        moved = tuple(part for part in parts if os.path.lexists(os.path.join(store, part)))
        others = tuple(part for part in fetching_swap.PARTS if part not in moved)
        kept = [f"would keep  {part} as {fetching_swap.next_name(store, part)}" for part in moved if keep]
        names = [
            *fetching_swap.surplus_copies(store, moved, record, max(keep - 1, 0))[0],
            *fetching_swap.surplus_copies(store, others, record, keep)[0],
            *(part for part in moved if not keep),
        ]
        return kept + [f"would remove {escape(name)}" for name in names]

    def _pruned(self, swap: fetching_swap.Swap) -> list[str]:
        """Remove what is not to be kept, now that all else is done. Return what was kept and removed, as lines."""
        result = self._result
        result.removed, notes = swap.prune(self._settings.keep)
        result.notes += notes
        result.previous = {part: name for part, name in result.previous.items() if name not in result.removed}
        kept = [f"kept    {part} as {name}: remove it when the broker is well" for part, name in result.previous.items()]
        return kept + ([f"removed {', '.join(map(escape, result.removed))}"] if result.removed else [])

    def _read(self, count: int) -> None:
        self._result.bytes += count

    def _parts(self, build: fetching_build.FoundBuild, record: fetching_record.Record) -> list[str]:
        parts = [part for part in fetching_swap.PARTS if part in build.parts]
        if TOPICS in parts and not self._settings.topics and (own := self._own(TOPICS)):
            parts.remove(TOPICS)
            if not record.is_laid(self._store, [TOPICS], build.name):
                self._result.notes.append(f"{own}: the store's own stays, the draft is left out: --topics puts it in")
        for name in (DELAY_OFFSETS, CONSUMER_OFFSETS):
            own = self._own(name)
            if name in parts and own and not record.is_laid(self._store, [name], build.name):
                parts.remove(name)
                self._result.notes.append(f"{own}: the store's own stays, the build's is left out: move it away first")
        timers = [part for part in parts if part in fetching_files.TIMER_SET]
        laid = record.is_laid(self._store, timers, build.name)
        parts = fetching_files.choose(self._store, parts, laid, self._result.notes)
        for own in (layouts.BATCH_QUEUES, layouts.EXT_QUEUES):
            if layouts.QUEUES in parts and own not in parts and os.path.lexists(f"{self._store}/{own}"):
                self._result.notes.append(f"{own}: the store's own stays, the build has none")
        return parts

    def _own(self, name: str) -> str:
        """Return which file of the store a broker reads for one in config/; "" for none."""
        path = broker_config(self._store, os.path.basename(name))
        return os.path.relpath(path, self._store) if os.path.lexists(path) else ""

    @property
    def _roots(self) -> tuple[str, ...]:
        """The folders of the store's log."""
        return roots_of(self._store, self._settings.commitlogs)

    def _segments(self) -> list[SegmentFile]:
        """Return the segments of the store's log. Raises InputError for folders without any that the user named."""
        named = self._settings.commitlogs
        check_no_store(named)
        segments = fetching_files.segments_in(self._roots)
        if named and not segments:
            shown = ", ".join(map(escape, named))
            meant = several(named[0]) or ": name the folder of the broker's log"
            raise InputError(f"--commitlog {shown}: holds no segment{meant}")
        return segments

    def _check_log(self, build: fetching_build.FoundBuild, segments: list[SegmentFile]) -> None:
        """Raise InputError for a store with another log than the build's."""
        if not self._settings.other_log:
            self._result.warnings += fetching_files.check_log(build, self._roots, segments)

    def _check_room(self, size: int, held: int, copies: list[str]) -> None:
        """Raise InputError for a store without room for ``size`` bytes; ``held`` are given back.

        ``copies`` are those that earlier fetches kept.
        """
        free = files.free_bytes(self._store)
        if free is not None and size > free + held:
            such = f", such as by removing {', '.join(map(escape, copies))}" if copies else ""
            raise InputError(f"{escape(self._store)}: needs {size:,} bytes where {free + held:,} are free: make room{such}")

    def _check_abort(self, build: fetching_build.FoundBuild, parts: list[str]) -> None:
        """Raise InputError where the broker would start by a checkpoint that says too much of what stays in the store."""
        parts = [layouts.QUEUES if part == layouts.SEPARATE else part for part in parts]
        old = store_signs.old_of(self._store, parts)
        new = read_times(files.join(build.folder, layouts.CHECKPOINT)) if old else None
        if old and new and store_signs.bounded(new, old, parts) != new:
            raise InputError(
                f"{escape(self._store)}: has a file abort, so its {listed(store_signs.unbuilt(parts))} may lack what "
                "the broker had not written, and by the build's checkpoint it would stay lost: build again from this store, "
                "or with all parts"
            )
