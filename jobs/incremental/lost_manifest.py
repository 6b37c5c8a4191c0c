"""Put back the manifest of DIR that somebody removed: without it nothing says that the folder is a build's.

The scan store keeps a copy of the manifest of each build that it knows. DIR is taken for such a build when each file in it is
as that build left it, by size and time: then nothing is in it that a run could not make again.
"""

from __future__ import annotations

import os

from rocketmq_reindex.jobs.incremental import carrying, last_build
from rocketmq_reindex.jobs.incremental.last_build import LastBuild
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.publishing.layout import PUBLISHED
from rocketmq_reindex.jobs.publishing.standing import StandingFiles
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore


def put_back(store: ScanStore, target: str, hash_slots: int) -> bool:
    """Put the manifest back into DIR, whose lock is held, if it lost one; return whether that was done.

    ``hash_slots`` are those of its IndexFiles.
    """
    if not output.lacks_manifest(target):
        return False
    there = sum(_count(os.path.join(target, name)) for name in PUBLISHED)
    for name in files.names(store.builds):
        digest, ending = os.path.splitext(name)
        build = last_build.load(store, digest) if ending == last_build.MANIFEST_COPY else None
        copy = files.join(store.builds, name)
        if build is not None and file_digest(copy) == digest and _whole(store, build, target, hash_slots) == there:
            output.put_back(target, copy)
            return True
    return False


def _count(path: str) -> int:
    """Returns how many files lie at ``path`` or below it, or what else is no folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        return sum(len(names) + sum(os.path.islink(os.path.join(folder, one)) for one in inner)
                   for folder, inner, names in os.walk(path))  # fmt: skip
    return int(os.path.lexists(path))


def _whole(store: ScanStore, build: LastBuild, target: str, hash_slots: int) -> int:
    """Returns how many files of the build lie in DIR as it left them."""
    found = StandingFiles(target, False, False, hash_slots, 0)
    own = [*(file.entry for file in build.index), *build.own]
    queues = ([line.entry for line in some] for some in carrying.queue_files(store, build))
    return sum(damaged.count(False) for damaged in map(found.damaged, (own, *queues)) if damaged)
