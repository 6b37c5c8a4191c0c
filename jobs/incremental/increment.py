"""``build --incremental``: scan what is new, write what changes, keep the rest; the result is that of a full build.

What a range of the log says is remembered in the scan store as soon as it is scanned, so a run that died is gone on with. All
that follows the scan (chain, damage, order of queues, plans) is done from all ranges, as in a full build. Files whose ranges
are the same as in the build that stands in DIR are taken from there.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from rocketmq_reindex import __version__
from rocketmq_reindex.jobs.building import writing
from rocketmq_reindex.jobs.building.decisions import Order
from rocketmq_reindex.jobs.building.manifest import path_of
from rocketmq_reindex.jobs.building.scan_memory import ScanMemory, fingerprint_of
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.building.unclean_stop import old_checkpoint
from rocketmq_reindex.jobs.incremental import carrying, last_build
from rocketmq_reindex.jobs.incremental.before import Before
from rocketmq_reindex.jobs.incremental.index_history import IndexHistory, fingerprints, plan_with_history
from rocketmq_reindex.jobs.incremental.last_build import LastBuild
from rocketmq_reindex.jobs.incremental.scan_place import store_of
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.publishing.output import MANIFEST
from rocketmq_reindex.jobs.publishing.parts import entries, joined
from rocketmq_reindex.jobs.spark.session import TASKS_PER_CORE
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.plan import EarlierFiles, IndexFilePlan
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.incremental.carry import Carry
from rocketmq_reindex.udfs.incremental.scan_store import file_digest
from rocketmq_reindex.udfs.incremental.write_again import LoadRows, stored_range, write_ranges
from rocketmq_reindex.udfs.stage import Stage

_TOLD: Final = ("bytes", "records", "units", "items", "files", "damage", "decisions", "warnings", "about", "exit")
"""of the summary: what a run that finds nothing new says again"""


@dataclass
class Written:
    """What an incremental build wrote, and took over: as the writers' own, and for the store."""

    all: writing.Written
    fingerprints: list[str] = field(default_factory=list)
    """of the IndexFiles"""


class Increment:
    """One incremental run; ``before`` is what it goes on from."""

    def __init__(
        self, settings: BuildSettings, scan: ScanSettings, units_per_file: int, target: str, log: Commitlog, reporter: Reporter
    ) -> None:
        self.settings, self.target, self.log, self.reporter = settings, target, log, reporter
        self.store = store_of(settings, target)
        self.fingerprint = fingerprint_of(__version__, scan, units_per_file, settings.write_topics)
        self.memory = ScanMemory(self.store, self.fingerprint, settings.recheck)
        self.before = Before(settings, self.store, target, self.fingerprint, reporter)
        self.history = IndexHistory([], EarlierFiles(), [])
        self.kept = 0

    # -- before the scan ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the store, and find the build that stands in DIR; DIR's lock is held where it has one."""
        self.store.make()
        self.before.find()

    def nothing_new(self) -> bool:
        return self.before.nothing_new(self.log, self.memory)

    def say_again(self, summary: Summary) -> None:
        """What the build before said, in a run that finds nothing new."""
        assert self.before.last is not None
        told = self.before.last.summary
        # What lies beside the log may be other than it was then.
        seen = [text for text in summary.warnings if text not in told["warnings"]]
        for name in _TOLD:
            setattr(summary, name, told[name])
        summary.warnings = told["warnings"] + seen
        summary.seconds["build"] = self.reporter.elapsed()
        self._tell(summary, len(self.before.last.ranges), self.kept, nothing_new=True)
        self.reporter.line("incremental: nothing new: DIR is as the build before left it")

    def _tell(self, summary: Summary, known: int, kept: int, *, nothing_new: bool) -> None:
        total = known if nothing_new else len(self.memory.entries)
        summary.incremental = {
            "nothing_new": nothing_new,
            "bytes_read": self.memory.bytes_read,
            "ranges": total,
            "ranges_known": known,
            "files_kept": kept,
        }

    def staged(self, stage: Stage) -> None:
        """From here on others know of this run, and remove nothing that it may use; before, they may have."""
        kept = output.kept(self.target)
        if self.before.last and kept and self.before.last.digest not in kept:
            raise InputError(f"{escape(self.target)}: others have published builds since this run began: run it again")
        if output.others_sweep(stage, self.target):
            self.memory.only = frozenset(entry.key for entry in self.before.last.ranges) if self.before.last else frozenset()

    # -- behind it ------------------------------------------------------------------------------------------------------

    def plan_index(self, accepted: list[RangeSummary]) -> list[IndexFilePlan]:
        self.history = plan_with_history(self.store, self.before.follows, self.log, accepted, self.settings.index_items)
        if self.history.anew or (self.before.last and self.before.last.ghosts and not self.before.follows):
            self.reporter.line("incremental: IndexFiles are cut anew: they do not go on with those of the build before")
        return self.history.plans

    def write(self, scan: Scan, accepted: list[RangeSummary], order: Order, plans: list[IndexFilePlan]) -> Written:
        """Write what changes, and take over the rest."""
        settings, last, stage = self.settings, self.before.follows, scan.stage
        prints = fingerprints(self.store, self.history, self.memory.entries.values(), settings)
        carried = self._carried_index(stage, plans, prints)
        parts = carrying.carried_index(stage, carried.values())
        index = set(parts)
        ranges = {s.number: stored_range(self.store, s.number, self.memory.entries[s.number]) for s in accepted}
        some, where = True, ""
        if last is not None and "consumequeue" in settings.only:
            now = {self.memory.entries[number].identity: one for number, one in ranges.items()}
            before = {entry.identity: stored_range(self.store, -1, entry) for entry in last.built_from}
            changed = [one for name, one in (before | now).items() if (name in now) != (name in before)]
            wanted = carrying.wanted_files(scan, self.store, last, order, changed, self.before.damaged)
            some, where = bool(wanted), carrying.write_wanted(stage, wanted)
            parts += carrying.carried_parts(stage, self.store, last, wanted, settings.cq_file_size)
            order = dataclasses.replace(order, opened=carrying.opened_again(order, wanted))
        if some and "consumequeue" in settings.only and ranges:
            tasks = min(len(ranges), TASKS_PER_CORE * scan.engine.cores)
            plan = write_ranges(stage, list(ranges.values()))
            scan.engine.scan(LoadRows(plan, tasks, scan.task.keys, scan.task.units_per_file, where), tasks)
        anew = [plan for plan in plans if plan.number not in carried]
        written = writing.write_both(scan, settings, accepted, order, anew, queues=some)
        for text in scan.engine.numbers(Carry(stage, self.before.folder, tuple(parts)), len(parts)) if parts else ():
            word = json.loads(text)
            self.kept += word["files"]
            if word["part"] not in index:
                written.parts.append(word["part"])
                written.queue_files += word["files"]
                written.units += word["units"]
        written.index = sorted([*written.index, *carried.values()], key=lambda word: int(word["number"]))
        return Written(written, prints)

    def _carried_index(self, stage: Stage, plans: list[IndexFilePlan], prints: list[str]) -> dict[int, dict[str, Any]]:
        """The words of IndexFiles that stay, by number: as if they had been written into the staging area."""
        if self.before.follows is None or "index" not in self.settings.only:
            return {}
        before = [word for _, _, word in self.before.follows.index]
        whole = [not damaged for damaged in self.before.damaged(before)]
        known = {found: word for found, _, word in compress(self.before.follows.index, whole)}
        return {
            # The same name as before: with the same files the manifest is the same.
            plan.number: known[found]
            | {"number": plan.number, "made": files.join(stage.made, files.base(known[found]["made"]))}
            for plan, found in zip(plans, prints, strict=True)
            if found in known
        }

    # -- at last --------------------------------------------------------------------------------------------------------

    def save(
        self, stage: Stage, accepted: list[RangeSummary], order: Order, written: Written,
        own: list[dict[str, Any]], parts: list[str], summary: Summary,
    ) -> bool:  # fmt: skip
        """Leave in the store what this build is made of. Returns whether it is the one that stands in DIR already."""
        self._tell(summary, self.memory.known, self.kept, nothing_new=False)
        store, digest, last = self.store, file_digest(files.join(stage.tree, MANIFEST)), self.before.last
        count = written.all.queue_files + len(written.all.index)
        same = last is not None and digest == last.digest
        stands = same and self.kept == count and self._stands()
        # The times of what stays, or of what is to be published: a rename leaves them alone.
        built = self.before.files_of(self.before.folder if stands else stage.tree, count)
        own = [entry | {"modified": time} for entry, time in zip(own, built.times(own), strict=True)]
        paths = [entry for entry in own if entry["path"].startswith("index/")]
        names = [[found, entry["path"], word | entry] for found, entry, word in zip(
            written.fingerprints, paths, written.all.index, strict=True)] if paths else []  # fmt: skip
        build = LastBuild(
            digest=digest,
            before="" if last is None else last.before if same else last.digest,
            fingerprint=self.fingerprint,
            settings=self.settings.for_manifest(),
            version=__version__,
            segments=last_build.sizes(self.log),
            ranges=[self.memory.entries[number] for number in range(len(self.memory.entries))],
            accepted=[found.number for found in accepted],
            ghosts=self.history.ghosts,
            begun=self.history.begun,
            index=names,
            checkpoint=[entry for entry in own if not entry["path"].startswith("index/")],
            old_checkpoint=last_build.times(old_checkpoint(self.settings)),
            summary={name: getattr(summary, name) for name in _TOLD} | {"exit": 3 if summary.lost else 0},
            messages=self.settings.messages_table,
        )
        lines = (line for _, line in heapq.merge(*(entries(part, path_of) for part in parts)))
        self._lines(f"{digest}.files", carrying.timed_lines(lines, built))
        self._lines(f"{digest}.odd", carrying.odd_lines(order))
        build.save(store)
        files.sync(store.root)
        self.built = build
        return stands

    def _stands(self) -> bool:
        """Whether of the build before the driver's own files are whole, and nothing else lies in DIR."""
        last = self.before.last
        return last is not None and not any(self.before.damaged(last.checkpoint)) and not self.before.has_strangers(last)

    def owe_rows(self) -> None:
        """The build that was saved is to be told in --tables: until it is, no later run finds nothing to do."""
        last_build.owe_rows(self.store, self.built)

    def rows_told(self) -> None:
        last_build.rows_told(self.store, self.built)

    def _lines(self, name: str, lines: Iterator[bytes]) -> None:
        path = files.join(self.store.builds, name)
        files.write_bytes(self.store.temporary, path, joined(line + b"\n" for line in lines))

    def sweep(self, stage: Stage) -> None:
        """Remove from the store what no build needs any longer; what was published stays, whatever happens here.

        With another run under way nothing is removed: it may use what earlier runs left, and is adding to it.
        """
        names = last_build.names(self.store)
        with output.sweeping(stage, self.target) as alone:
            if alone:
                needed = last_build.needed(self.store, self.built, output.kept(self.target))
                last_build.remove(self.store, [name for name in names if name not in needed])
