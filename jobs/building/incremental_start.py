"""The start of an incremental build: the build in DIR, and whether log and DIR are as that build left them."""

import heapq
import os
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.building import carrying, last_build, options as building_options, scanning, store_signs
from rocketmq_reindex.jobs.publishing import local, output
from rocketmq_reindex.jobs.publishing.layout import PUBLISHED
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore, all_committed, sampled_alike
from rocketmq_reindex.version import __version__

# ---------------------------------------------------------------------------------------------------------------- folder counts
# Whether the folders of a build hold its files and nothing else. Entries are counted: there may be a million.

_FOLDERS: Final = (layouts.BATCH_QUEUES, layouts.QUEUES, layouts.INDEX)


def has_other_files(target: str, paths: Iterable[str], only: Iterable[str]) -> bool:
    """Return whether the folders of ``target`` hold more or less than the files at ``paths`` and the folders around these.

    ``paths`` are sorted, and each is known to be there. A part of ``only`` has its folder even without any file.
    """
    counts = {folder: files.count_below(files.join(target, folder)) for folder in _FOLDERS}
    return counts != {folder: 0 if folder in only else -1 for folder in _FOLDERS} | _counts(paths)


def _counts(paths: Iterable[str]) -> dict[str, int]:
    """Return the number of files and folders below each top folder."""
    counts: Counter[str] = Counter()
    before: list[str] = []
    for path in paths:
        parents = path.split("/")[:-1]
        shared = 0
        while shared < min(len(parents), len(before)) and parents[shared] == before[shared]:
            shared += 1
        counts[parents[0]] += 1 + len(parents) - max(1, shared)
        before = parents
    return counts


# ---------------------------------------------------------------------------------------------------------------- lost manifest
# Put back the manifest of DIR that somebody removed: without it nothing says that the folder is a build's.
#
# The scan store keeps a copy of the manifest of each build that it knows. DIR is taken for such a build when each file in it is
# as that build left it, by size and time: then nothing is in it that a run could not make again.


def put_back(store: ScanStore, target: str, hash_slots: int) -> bool:
    """Put the manifest back into DIR, whose lock is held, if it lost one. Return whether that was done.

    ``hash_slots`` are those of its IndexFiles.
    """
    if not output.lacks_manifest(target):
        return False
    count = sum(_count(os.path.join(target, name)) for name in PUBLISHED)
    for name in files.names(store.builds):
        digest, ending = os.path.splitext(name)
        build = last_build.load(store, digest) if ending == last_build.MANIFEST_COPY else None
        copy = files.join(store.builds, name)
        if build is not None and file_digest(copy) == digest and _whole(store, build, target, hash_slots) == count:
            local.put_back(target, copy)
            return True
    return False


def _count(path: str) -> int:
    """Return how many files lie at ``path`` or below it, or what else is no folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        return sum(len(names) + sum(os.path.islink(os.path.join(folder, name)) for name in inner)
                   for folder, inner, names in os.walk(path))  # fmt: skip
    return int(os.path.lexists(path))


def _whole(store: ScanStore, build: last_build.LastBuild, target: str, hash_slots: int) -> int:
    """Return how many files of the build lie in DIR as it left them."""
    standing = last_build.StandingFiles(target, False, False, hash_slots, 0)
    single = [*(file.entry for file in build.index), *build.own]
    queues = ([line.entry for line in chunk] for chunk in carrying.queue_files(store, build))
    return sum(damaged.count(False) for damaged in map(standing.damaged, (single, *queues)) if damaged)


# ----------------------------------------------------------------------------------------------------------------- build before
# What an incremental build starts from: the build in DIR, and whether log and DIR are as that build left them.

_LOOKS_AT_ONCE: Final = 16


class Before:
    """``last`` is the build that stands in DIR, if the store knows it, and ``folder`` where its files lie."""

    def __init__(
        self, settings: building_options.BuildSettings, store: ScanStore, target: str, fingerprint: str, reporter: Reporter
    ) -> None:
        self._settings, self._store, self._target = settings, store, target
        self._fingerprint, self._reporter = fingerprint, reporter
        self.last: last_build.LastBuild | None = None
        self.folder = ""
        self._files: last_build.StandingFiles | None = None

    def find(self) -> None:
        """Find the build that stands in DIR. DIR's lock is held where it has one."""
        settings, standing = self._settings, output.standing(self._target)
        if standing is None:
            if not put_back(self._store, self._target, settings.hash_slots):
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

    def files_of(self, folder: str, count: int) -> last_build.StandingFiles:
        """Return the files of a build in its folder; ``count`` is about how many there are."""
        settings = self._settings
        return last_build.StandingFiles(folder, not settings.keep_zeros, settings.recheck, settings.hash_slots, count)

    @property
    def follows(self) -> last_build.LastBuild | None:
        """Return the build before, when its settings were the same: then its files may stay."""
        is_alike = self.last and self.last.settings == self._settings.for_manifest() and self.last.version == __version__
        return self.last if is_alike else None

    def bytes_known(self, log: Commitlog) -> int:
        """Return how many bytes of the log the build before has scanned, and this one need not scan again."""
        if self.last is None or self._settings.recheck or self.last.fingerprint != self._fingerprint:
            return 0
        known = dict(self.last.segments)
        return sum(min(known.get(name, 0), size) for name, size in last_build.sizes(log))

    def nothing_new(self, log: Commitlog, memory: scanning.ScanMemory) -> bool:
        """Return whether log and DIR are as the build before left them, as far as sizes, times and a few pages tell."""
        last = self.follows
        if last is None or self._settings.recheck or last.fingerprint != self._fingerprint:
            return False
        if last.segments != last_build.sizes(log) or last.old_checkpoint != last_build.times(
            store_signs.old_checkpoint(self._settings)
        ):
            return False
        if not all(all_committed(entry, self._settings.committed) for entry in last.ranges):
            return False
        paths = {segment.name: segment.path for segment in log.segments}
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
            for alike, read in pool.map(lambda entry: sampled_alike(entry, paths[entry.segment]), last.ranges):
                memory.bytes_read += read
                if not alike:
                    return False
        single = [*(file.entry for file in last.index), *last.own]
        damaged = any(self.damaged(single)) or any(
            carrying.damaged_ones(chunk, self.damaged) for chunk in carrying.queue_files(self._store, last)
        )
        if damaged or self.has_other_files(last):
            return False
        lacks_messages = self._settings.messages_table and not last.messages
        if self._settings.keeps_rows and (lacks_messages or last_build.are_rows_missing(self._store, last)):
            self._reporter.line("incremental: nothing new, but --tables lacks rows of the build in DIR")
            return False
        return True

    def has_other_files(self, last: last_build.LastBuild) -> bool:
        """Return whether DIR's folders hold more or less than the files of ``last``: a broker maps whatever it finds there."""
        if files.no_rename(self._target):
            # A broker gets what is fetched, and that is what the manifest names.
            return False
        index = [file.path for file in last.index]
        queues = (line.entry["path"] for chunk in carrying.queue_files(self._store, last) for line in chunk)
        return has_other_files(self._target, heapq.merge(queues, index), self._settings.only)

    def damaged(self, entries: list[dict[str, Any]]) -> list[bool]:
        """Return for each file of the build before whether somebody changed or removed it."""
        assert self._files is not None
        return self._files.damaged(entries) if entries else []
