"""The engine that runs on processes of this machine. It needs no Java."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading

from rocketmq_reindex.jobs.engines.tasks import plan_shuffle
from rocketmq_reindex.jobs.local.pool import Pool
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.worker.kept_rows import read_rows
from rocketmq_reindex.udfs.worker.setup import Batches
from rocketmq_reindex.udfs.worker.tasks import Map, Number, Reduce, Scan


class LocalEngine:
    """Runs tasks in the processes of a pool. Rows lie in files: each task that leaves rows writes one."""

    is_here = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.cores = pool.cores
        self._partitions = 1
        self._folder = ""
        self._kept: list[str] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        if files.no_rename(staging.root):
            # A store of objects is no place for rows, which are read in pieces: they stay on this machine.
            self._folder = tempfile.mkdtemp(prefix="rmq-reindex-rows-")
            self._pool.remove_in_the_end(self._folder)
        else:
            self._folder = staging.rows
            files.make_folder(self._folder, below=staging.root)
        self._partitions, count = plan_shuffle(max(self.cores, wanted), self.cores, 0)
        return tuple(bucket % self._partitions for bucket in range(count))

    def _path(self) -> str:
        with self._lock:
            return files.join(self._folder, f"{next(self._numbers)}")

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        asked = [Scan(function, number, self._path()) for number in range(tasks)]
        found = self._pool.run(asked)
        with self._lock:
            self._kept += [task.path for task, (_, wrote) in zip(asked, found, strict=True) if wrote]
        return [data for summaries, _ in found for data in summaries]

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        return [data for batch in read_rows(self._kept, kind, left_out) for data in batch.column("data").to_pylist()]

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        sources, without = list(self._kept), tuple(left_out)
        mapped: list[str] = []
        if before is not None:
            asked = [Map(before, source, kind, without, self._path()) for source in sources]
            wrote = self._pool.run(asked)
            sources = mapped = [task.path for task, made in zip(asked, wrote, strict=True) if made]
            without = ()
        found = self._pool.run([Reduce(reducer, tuple(sources), kind, without, key) for key in range(self._partitions)])
        _remove(mapped)
        return [text for texts in found for text in texts]

    def numbers(self, function: Batches, count: int) -> list[str]:
        # One IndexFile takes as long as many files of ConsumeQueues.
        found = self._pool.run([Number(function, number) for number in range(count)], soon=True)
        return [text for texts in found for text in texts]

    def forget(self) -> None:
        _remove(self._kept)
        self._kept = []

    def give_up(self) -> None:
        self._pool.close()

    def close(self) -> None:
        """Remove what the engine keeps. All processes have ended."""
        if self._folder:
            files.remove_tree(self._folder)


def _remove(paths: list[str]) -> None:
    for path in paths:
        with files.naming(path):
            os.remove(path)
