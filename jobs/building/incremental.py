"""``build --incremental``: scan what is new, write what changes, keep the other files, store it for the next run."""

import dataclasses
import heapq
from collections.abc import Iterator
from itertools import compress
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.building import carrying, full, last_build
from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.finishing import path_of
from rocketmq_reindex.jobs.building.incremental_start import Before
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import scan_settings
from rocketmq_reindex.jobs.building.scanning import Scan, ScanMemory, fingerprint_of, store_of
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, task_count
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.publishing.layout import MANIFEST, Leftovers, copy_whole
from rocketmq_reindex.jobs.publishing.output import entries, joined
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format import digest as storage_format_digest, errors, layouts, showing
from rocketmq_reindex.storage_format.index.layout import EarlierFiles, IndexFilePlan
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore
from rocketmq_reindex.udfs.incremental.stored_rows import Carry, LoadRows, StoredRange, stored_range, write_ranges
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.index import IndexFileResult
from rocketmq_reindex.udfs.write.queues import FilesResult
from rocketmq_reindex.version import __version__

# ----------------------------------------------------------------------------------------------------------------------- saving
# Store a build of an incremental run, so that the next run can start from it.

REPEATED: Final = (
    "bytes", "records", "units", "items", "tag_items", "files", "damage", "decisions", "warnings", "about", "exit",
)  # fmt: skip
"""fields of the result that a run repeats when it finds nothing new"""


def save(
    store: ScanStore, staging: StagingFolder, before: Before, draft: last_build.LastBuild, build_output: full.BuildOutput,
    prints: list[str], kept: int, result: BuildResult,
) -> tuple[last_build.LastBuild, bool]:  # fmt: skip
    """Store the build, and return it with whether DIR holds the same one already.

    ``draft`` has what it was made from; ``prints`` are the fingerprints of its IndexFiles; ``kept`` is how many files it took
    from the build before. The caller makes the store durable.
    """
    manifest = files.join(staging.tree, MANIFEST)
    last, digest = before.last, file_digest(manifest)
    count = build_output.written.queue_files + len(build_output.written.index)
    is_same = last is not None and digest == last.digest
    stands = is_same and kept == count and _is_whole(before)
    # The times of the files that stand in DIR, or of those that are to be published: a rename leaves them alone.
    built = before.files_of(before.folder if stands else staging.tree, count)
    driver_entries = [
        entry | {"modified": time} for entry, time in zip(build_output.entries, built.times(build_output.entries), strict=True)
    ]
    index = [entry for entry in driver_entries if entry["path"].startswith("index/")]
    build = dataclasses.replace(
        draft,
        digest=digest,
        before="" if last is None else last.before if is_same else last.digest,
        index=[
            last_build.IndexFile(fingerprint, entry["path"], vars(made) | entry)
            for fingerprint, entry, made in zip(prints, index, build_output.written.index, strict=True)
        ] if index else [],
        own=[entry for entry in driver_entries if not entry["path"].startswith("index/")],
        summary={name: getattr(result, name) for name in REPEATED} | {"exit": result.exit_by_loss},
    )  # fmt: skip
    lines = (line for _, line in heapq.merge(*(entries(part, path_of) for part in build_output.parts)))
    _write_lines(store, f"{digest}.files", carrying.timed_lines(lines, built))
    _write_lines(store, f"{digest}.odd", carrying.odd_lines(build_output.order))
    if not staging.build:
        copy_whole(store.temporary, manifest, files.join(store.builds, f"{digest}{last_build.MANIFEST_COPY}"))
    build.save(store)
    return build, stands


def _is_whole(before: Before) -> bool:
    """Return whether of the build before the driver's own files are whole, and nothing else lies in DIR."""
    last = before.last
    return last is not None and not any(before.damaged(last.own)) and not before.has_other_files(last)


def _write_lines(store: ScanStore, name: str, lines: Iterator[bytes]) -> None:
    path = files.join(store.builds, name)
    files.write_bytes(store.temporary, path, joined(line + b"\n" for line in lines))


# -------------------------------------------------------------------------------------------------------------------- increment
# The result is that of a full build.
#
# What a range of the log holds is stored in the scan store as soon as it is scanned, so the next run continues a run that died.
# All that follows the scan (chain, damage, order of queues, plans) is done from all ranges, as in a full build. Files whose
# ranges are the same as in the build that stands in DIR are taken from there.


class Increment(full.FullBuild):
    """The steps of a build that starts from the one that stands in DIR."""

    memory: ScanMemory

    def __init__(self, settings: BuildSettings, target: str, log: Commitlog, reporter: Reporter) -> None:
        super().__init__(settings, log)
        self.target, self.reporter = target, reporter
        self.store = store_of(settings, target)
        units_per_file = settings.cq_file_size // UNIT_SIZE
        self.fingerprint = fingerprint_of(__version__, scan_settings(settings), units_per_file, settings.write_topics)
        self.memory = ScanMemory(self.store, self.fingerprint, settings.recheck)
        self.before = Before(settings, self.store, target, self.fingerprint, reporter)
        self.history = carrying.IndexHistory([], EarlierFiles(), [])
        self.prints: list[str] = []
        """a fingerprint for each IndexFile"""
        self.kept = 0
        """files that are taken from the build before"""
        self._saved: last_build.LastBuild | None = None
        self._since = -1
        """a handle of the store, from before anything is written there"""

    # -- before the scan ------------------------------------------------------------------------------------------------

    def nothing_new(self) -> tuple[list[str], dict[str, Any] | None]:
        self.store.make()
        self._since = files.handle_for_sync(self.store.root, self)
        if self.store.has_earlier_kind():
            self.reporter.line(
                f"incremental: what --tables knows has digests of {storage_format_digest.EARLIER_KIND}: the log is read again"
            )
        self.before.find()
        self.memory.bytes_before = self.before.bytes_known(self.log)
        last = self.before.last
        if last is None:
            return [], None
        notes = self._what_is_gone([name for name, _ in last.segments])
        if not self.before.nothing_new(self.log, self.memory):
            return notes, None
        self.reporter.line("incremental: nothing new: DIR is as the build before left it")
        counts = self._counts(len(last.ranges), len(last.ranges), nothing_new=True)
        return notes, {name: last.summary[name] for name in REPEATED} | {"incremental": counts}

    def _what_is_gone(self, known: list[str]) -> list[str]:
        """Return a note, and no warning: the manifest has all warnings, and is that of a full build of the log as it is."""
        newest = max((segment.name for segment in self.log.segments), default="")
        gone = min((name for name in known if name > newest), default="")
        text = (
            f"the log now ends before segment {gone}, which the build before had: if nobody cut the log, look whether its copy "
            "is whole: DIR lacks what stood there"
        )
        return [text] if gone else []

    def _counts(self, ranges: int, known: int, *, nothing_new: bool) -> dict[str, Any]:
        return {
            "nothing_new": nothing_new,
            "bytes_read": self.memory.bytes_read,
            "ranges": ranges,
            "ranges_known": known,
            "files_kept": self.kept,
        }

    def check_room(
        self, staging: StagingFolder, accepted: list[RangeSummary] | None = None, plans: list[IndexFilePlan] | None = None,
        extra_units: int = 0,
    ) -> None:  # fmt: skip
        # Most files are taken from the build before, so the size of all of them says nothing.
        if self.before.last is None:
            super().check_room(staging, accepted, plans, extra_units)

    def staged(self, staging: StagingFolder) -> None:
        """From here on other runs know of this one, and remove nothing that it may use. Earlier they may have."""
        last, kept = self.before.last, output.kept(self.target)
        if last and kept and last.digest not in kept:
            raise errors.InputError(
                f"{showing.escape(self.target)}: others have published builds since this run began: run it again"
            )
        if output.others_sweep(staging, self.target):
            self.memory.only = frozenset(entry.key for entry in last.ranges) if last else frozenset()

    # -- after the scan -------------------------------------------------------------------------------------------------

    def plan_index(self, accepted: list[RangeSummary]) -> list[IndexFilePlan]:
        last, follows = self.before.last, self.before.follows
        self.history = carrying.plan_with_history(self.store, follows, self.log, accepted, self.settings.index_items)
        if self.history.starts_over or (last and last.expired and not follows):
            self.reporter.line("incremental: IndexFiles start over: they do not continue those of the build before")
        return self.history.plans

    def write(self, scan: Scan, accepted: list[RangeSummary], order: Order, plans: list[IndexFilePlan]) -> full.WrittenFiles:
        """Write what changes, and take the other files from the build before. Return what was written."""
        settings, staging = self.settings, scan.staging
        self.prints = carrying.fingerprints(self.store, self.history, self.memory.entries.values(), settings)
        carried = self._carried_index(staging, plans)
        index_parts = carrying.carried_index(staging, carried.values())
        ranges = {s.number: stored_range(self.store, s.number, self.memory.entries[s.number]) for s in accepted}
        queues = self._queues_to_write(scan, ranges, order) if layouts.QUEUES in settings.only else carrying.QueuePlan(order)
        if queues.some and ranges and layouts.QUEUES in settings.only:
            # Where only some files are wanted, most ranges have nothing for them.
            size = len(ranges) * scan.range_size // (16 if queues.wanted else 1)
            tasks = task_count(len(ranges), size, scan.engine.cores, DERIVED_BYTES)
            plan = write_ranges(staging, list(ranges.values()))
            scan.engine.scan(LoadRows(plan, tasks, scan.task.keys, scan.task.units_per_file, queues.wanted), tasks)
        changed = [plan for plan in plans if plan.number not in carried]
        written = full.write_both(scan, settings, accepted, queues.order, changed, queues=queues.some)
        self._carry(scan, [*index_parts, *queues.carried], frozenset(index_parts), written)
        written.index += [IndexFileResult.of_kept(fields) for fields in carried.values()]
        written.index.sort(key=lambda result: result.number)
        return written

    def _queues_to_write(self, scan: Scan, ranges: dict[int, StoredRange], order: Order) -> carrying.QueuePlan:
        """Plan which ConsumeQueue files are written; without a build before, all of them."""
        last, entries = self.before.follows, self.memory.entries
        if last is None:
            return carrying.QueuePlan(order)
        now = {entries[number].identity: stored for number, stored in ranges.items()}
        before = {entry.identity: stored_range(self.store, -1, entry) for entry in last.built_from}
        changed = [stored for name, stored in (before | now).items() if (name in now) != (name in before)]
        return carrying.plan_queues(scan, self.store, last, order, changed, self.before.damaged, self.settings.cq_file_size)

    def _carried_index(self, staging: StagingFolder, plans: list[IndexFilePlan]) -> dict[int, dict[str, Any]]:
        """Return the writer's results for IndexFiles that stay, by number: as if this run had written them."""
        if self.before.follows is None or "index" not in self.settings.only:
            return {}
        before = self.before.follows.index
        whole = [not damaged for damaged in self.before.damaged([file.entry for file in before])]
        known = {file.fingerprint: file.entry for file in compress(before, whole)}
        return {
            # The same name as before: with the same files the manifest is the same.
            plan.number: known[fingerprint]
            | {"number": plan.number, "made": files.join(staging.made, files.base(known[fingerprint]["made"]))}
            for plan, fingerprint in zip(plans, self.prints, strict=True)
            if fingerprint in known
        }

    def _carry(self, scan: Scan, parts: list[str], index_parts: frozenset[str], written: full.WrittenFiles) -> None:
        """Bring the files of ``parts`` from the build before into the staging folder."""
        if not parts:
            return
        for result in FilesResult.read(scan.engine.numbers(Carry(scan.staging, self.before.folder, tuple(parts)), len(parts))):
            self.kept += result.files
            if result.part not in index_parts:
                written.add(result)

    # -- at the end -----------------------------------------------------------------------------------------------------

    def save(
        self, staging: StagingFolder, build_output: full.BuildOutput, result: BuildResult, has_rows: bool
    ) -> tuple[bool, dict[str, Any] | None]:  # fmt: skip
        """Store what this build was made from. Return whether DIR holds the same build already, and what was read and kept."""
        draft = dataclasses.replace(
            last_build.of_log(self.log, self.settings, self.fingerprint),
            ranges=[self.memory.entries[number] for number in range(len(self.memory.entries))],
            accepted=[summary_of_range.number for summary_of_range in build_output.accepted],
            expired=self.history.expired,
            start=self.history.start,
        )
        self._saved, stands = save(self.store, staging, self.before, draft, build_output, self.prints, self.kept, result)
        files.sync(self.store.root, self._since)
        if has_rows or not self.settings.keeps_rows:
            # A later run on Spark writes the rows of a build without them.
            last_build.mark_rows_missing(self.store, self._saved)
        return stands, self._counts(len(self.memory.entries), self.memory.known, nothing_new=False)

    def rows_written(self, leftovers: Leftovers) -> None:
        if self._saved:
            last_build.mark_rows_written(self.store, self._saved, leftovers)

    def published(self, staging: StagingFolder, leftovers: Leftovers) -> None:
        """Remove from the store what no build needs any longer; what was published stays, whatever happens here.

        While another run is under way nothing is removed: it may use what earlier runs left, and is adding to it.
        """
        assert self._saved is not None
        names = last_build.names(self.store)
        with output.sweeping(staging, self.target) as alone:
            if alone:
                needed = last_build.needed(self.store, self._saved, output.kept(self.target))
                leftovers.remove_all(files.join(self.store.root, name) for name in names if name not in needed)


def steps_of(settings: BuildSettings, target: str, log: Commitlog, reporter: Reporter) -> full.FullBuild:
    """Return the steps of the build that ``settings`` ask for. DIR's lock is held. Raises InputError."""
    return Increment(settings, target, log, reporter) if settings.incremental else full.FullBuild(settings, log)
