"""The engine that runs on processes of this machine, started before anything slow is imported. It needs no Java."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.engines.engine import plan_shuffle
from rocketmq_reindex.jobs.engines.pool import Pool
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.worker.tasks import Map, Number, Reduce, ScanRange, read_rows

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.engines.engine import Engine

# ------------------------------------------------------------------------------------------------------------------------ cores
# How many processes work at once on this machine.

_LOCAL: Final = re.compile(r"local(?:\[\s*([1-9][0-9]{0,5}|\*)\s*(?:,\s*[0-9]+\s*)?\])?")
_GROUPS: Final = Path("/sys/fs/cgroup")


def cores_of(master: str) -> int:
    """Return the processes that ``--master`` asks for: N for local[N], 1 for local, else the processors of this process.

    Raises UsageError for a master elsewhere.
    """
    match = _LOCAL.fullmatch(master or "local[*]")
    if match is None:
        raise UsageError(
            f"--master {escape(master)}: --engine local runs on this machine alone: take local[N], or --engine spark"
        )
    return own_cores() if match[1] == "*" else int(match[1] or 1)


def own_cores() -> int:
    """Return the processors that this process may use: by its affinity, and by the limit of its container."""
    there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(there, _quota(_GROUPS, Path("/proc/self/cgroup"), there)))


def _quota(groups: Path, own: Path, there: int) -> int:
    """Return the processors that control groups (version 2) leave this process, rounded up; ``there`` without a limit."""
    least = there
    with contextlib.suppress(OSError, ValueError):
        names = [line[3:] for line in own.read_text().splitlines() if line.startswith("0::")]
        folder = groups / "".join(names).lstrip("/")
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text().split()
                if quota != "max":
                    least = min(least, -(-int(quota) // int(period)))
            if group == groups:
                break
    return least


# ----------------------------------------------------------------------------------------------------------------------- engine


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
        asked = [ScanRange(function, number, self._path()) for number in range(tasks)]
        results = self._pool.run(asked)
        with self._lock:
            self._kept += [task.path for task, (_, wrote) in zip(asked, results, strict=True) if wrote]
        return [data for summaries, _ in results for data in summaries]

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
        results = self._pool.run([Reduce(reducer, tuple(sources), kind, without, key) for key in range(self._partitions)])
        _remove(mapped)
        return [text for texts in results for text in texts]

    def numbers(self, function: Batches, count: int) -> list[str]:
        # One IndexFile takes as long as many files of ConsumeQueues.
        results = self._pool.run([Number(function, number) for number in range(count)], soon=True)
        return [text for texts in results for text in texts]

    def each_number(self, function: Batches, count: int) -> Iterator[str]:
        yield from self.numbers(function, count)

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


# ---------------------------------------------------------------------------------------------------------------------- engines
# Start the processes of the local engine before anything slow is imported, and open the engine once a run asks for it.


class LocalEngines:
    """Opens the engine of a run, and closes it. As a context it ends all processes that it has started.

    ``command`` is build or verify, ``master`` may say how many processes work at once (local[N]).
    """

    def __init__(self, command: str, master: str = "") -> None:
        self._command, self._cores = command, cores_of(master)
        self._pool: Pool | None = None

    def start(self) -> Pool:
        """Return the processes, which are started unless they have been."""
        self._pool = self._pool or Pool(self._command, self._cores)
        return self._pool

    def __enter__(self) -> LocalEngines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        # A second run has processes of its own.
        with self:
            pool = self.start()

            pool.wait_until_up()
            engine = LocalEngine(pool)
            try:
                yield engine
            finally:
                pool.close()
                engine.close()
