"""What an incremental build starts from: the build in DIR, and whether log and DIR are as that build left them."""

from __future__ import annotations

import heapq
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketmq_reindex import __version__
from rocketmq_reindex.jobs.building.scan_memory import ScanMemory
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.unclean_stop import old_checkpoint
from rocketmq_reindex.jobs.incremental import carrying, folder_counts, last_build, lost_manifest
from rocketmq_reindex.jobs.incremental.last_build import LastBuild
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.publishing.standing import StandingFiles
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.incremental.samples import sampled_alike
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore

_LOOKS_AT_ONCE: Final = 16


class Before:
    """``last`` is the build that stands in DIR, if the store knows it, and ``folder`` where its files lie."""

    def __init__(self, settings: BuildSettings, store: ScanStore, target: str, fingerprint: str, reporter: Reporter) -> None:
        self._settings, self._store, self._target = settings, store, target
        self._fingerprint, self._reporter = fingerprint, reporter
        self.last: LastBuild | None = None
        self.folder = ""
        self._files: StandingFiles | None = None

    def find(self) -> None:
        """Find the build that stands in DIR. DIR's lock is held where it has one."""
        settings, standing = self._settings, output.standing(self._target)
        if standing is None:
            if not lost_manifest.put_back(self._store, self._target, settings.hash_slots):
                return
            self._reporter.line("incremental: DIR had lost its manifest: it is as before, and has it again")
            standing = output.standing(self._target)
            assert standing is not None
        self.last = last_build.load(self._store, standing.digest, settings.recheck)
        if self.last is None:
            self._reporter.line("incremental: what stands in DIR is not known in --tables: all of its files are written again")
            return
        count = sum(self.last.summary["files"].values())
        self.folder = standing.folder
        self._files = self.files_of(self.folder, count)
        if self.last.fingerprint != self._fingerprint:
            self._reporter.line(
                "incremental: other settings than in the build before, or another version: all of the log is scanned"
            )

    def files_of(self, folder: str, count: int) -> StandingFiles:
        """Return the files of a build in its folder; ``count`` is about how many there are."""
        settings = self._settings
        return StandingFiles(folder, not settings.keep_zeros, settings.recheck, settings.hash_slots, count)

    @property
    def follows(self) -> LastBuild | None:
        """Return the build before, when its settings were the same: then its files may stay."""
        same = self.last and self.last.settings == self._settings.for_manifest() and self.last.version == __version__
        return self.last if same else None

    def bytes_known(self, log: Commitlog) -> int:
        """Return how many bytes of the log the build before has scanned, and this one need not scan again."""
        if self.last is None or self._settings.recheck or self.last.fingerprint != self._fingerprint:
            return 0
        known = dict(self.last.segments)
        return sum(min(known.get(name, 0), size) for name, size in last_build.sizes(log))

    def nothing_new(self, log: Commitlog, memory: ScanMemory) -> bool:
        """Return whether log and DIR are as the build before left them, as far as sizes, times and a few pages tell."""
        last = self.follows
        if last is None or self._settings.recheck or last.fingerprint != self._fingerprint:
            return False
        if last.segments != last_build.sizes(log) or last.old_checkpoint != last_build.times(old_checkpoint(self._settings)):
            return False
        paths = {segment.name: segment.path for segment in log.segments}
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
            for alike, read in pool.map(lambda entry: sampled_alike(entry, paths[entry.segment]), last.ranges):
                memory.bytes_read += read
                if not alike:
                    return False
        own = [*(file.entry for file in last.index), *last.own]
        damaged = any(self.damaged(own)) or any(
            carrying.damaged_ones(some, self.damaged) for some in carrying.queue_files(self._store, last)
        )
        if damaged or self.has_other_files(last):
            return False
        lacks_messages = self._settings.messages_table and not last.messages
        if self._settings.keeps_rows and (lacks_messages or last_build.are_rows_missing(self._store, last)):
            self._reporter.line("incremental: nothing new, but --tables lacks rows of the build in DIR")
            return False
        return True

    def has_other_files(self, last: LastBuild) -> bool:
        """Return whether DIR's folders hold more or less than the files of ``last``: a broker maps whatever it finds there."""
        if files.no_rename(self._target):
            # A broker gets what is fetched, and that is what the manifest names.
            return False
        index = [file.path for file in last.index]
        queues = (line.entry["path"] for some in carrying.queue_files(self._store, last) for line in some)
        return folder_counts.has_other_files(self._target, heapq.merge(queues, index), self._settings.only)

    def damaged(self, entries: list[dict[str, Any]]) -> list[bool]:
        """Return for each file of the build before whether somebody changed or removed it."""
        assert self._files is not None
        return self._files.damaged(entries) if entries else []
