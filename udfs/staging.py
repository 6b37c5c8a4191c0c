"""The staging folder of one run, and the small files in it that say how far a task is."""

import contextlib
import time
import uuid
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex import files

# ---------------------------------------------------------------------------------------------------------------------- staging
# The staging folder of one run: all files are made there, beside the output, and published by one rename or one small file.


@dataclass(frozen=True)
class StagingFolder:
    """The folders below ``root``; executors get only these paths.

    ``build`` is the folder of the build's own files where no folder can be renamed: they are written in place. ``trim``: files
    end with their last byte in use.
    """

    root: str
    build: str = ""
    trim: bool = False

    @property
    def tree(self) -> str:
        """what becomes the output folder"""
        return self.build or files.join(self.root, "tree")

    @property
    def sealed(self) -> str:
        """the tree once it is whole: late attempts of tasks no longer find it"""
        return files.join(self.root, "sealed")

    @property
    def replaced(self) -> str:
        """an earlier build, between the two renames that replace it where names cannot be swapped"""
        return files.join(self.root, "replaced")

    @property
    def blocks(self) -> str:
        """the index items of each range, before their files are planned"""
        return files.join(self.root, "blocks")

    @property
    def made(self) -> str:
        """the IndexFiles of all attempts; the driver moves those of successful tasks into the tree, or lists them in place"""
        return files.join(self.build, "index") if self.build else files.join(self.root, "made")

    @property
    def ranges(self) -> str:
        """the summary of each finished range"""
        return files.join(self.root, "ranges")

    @property
    def parts(self) -> str:
        """parts of the manifest's list of files"""
        return files.join(self.root, "parts")

    @property
    def progress(self) -> str:
        """how far tasks are"""
        return files.join(self.root, "progress")

    @property
    def plans(self) -> str:
        """what the driver planned, for executors to read"""
        return files.join(self.root, "plans")

    @property
    def tables(self) -> str:
        """units for a RocksDB database, by queue, and the tables that it takes in; made where such a database is built"""
        return files.join(self.root, "tables")

    @property
    def rows(self) -> str:
        """rows that tasks leave for other tasks, where the engine keeps them in files"""
        return files.join(self.root, "rows")

    @property
    def temporary(self) -> str:
        """files that are being written"""
        return files.join(self.root, "temporary")

    def stored(self, size: int) -> int | None:
        """Return the size to store a file in that has ``size`` bytes in a store; None: up to its last byte in use."""
        return None if self.trim else size

    def make(self) -> None:
        """Make all folders."""
        below = files.parent(self.build or self.root)
        for folder in (self.tree, self.blocks, self.made, self.ranges, self.parts, self.progress, self.plans, self.temporary):
            files.make_folder(folder, below=below)


# --------------------------------------------------------------------------------------------------------------------- progress
# Tell the driver how far a task is within one piece of its work: the size of a small staged file says it.
#
# A task has no other way to the driver that goes through Spark, a pool of processes and a bucket alike. A listing gives the
# sizes of all such files, so that none of them is opened.

WHOLE: Final = 1000
"""Bytes of the file when all is done."""
INTERVAL = 0.4
"""Seconds between two writes of a task, and between two listings of the driver, in local folders."""
BUCKETS_MOST: Final = 64
"""How many times the average a hot queue's bucket may have before its file tells no more: each time is WHOLE bytes."""
SELDOM = 10.0
"""The same where each is a request."""


def _interval(staging: StagingFolder) -> float:
    return SELDOM if files.no_rename(staging.root) else INTERVAL


class Position:
    """How far one attempt is with the work ``name``, which has ``total`` parts of any kind.

    Work that takes less than the interval writes nothing, but for its end, where that is told. Attempts write files of their
    own: of each work the furthest counts. ``most``: ``total`` is what such work has on average; this may have so many times as
    many parts.
    """

    def __init__(self, staging: StagingFolder, name: str, total: int, times: int = 1) -> None:
        self._temporary, self._total, self._most = staging.temporary, total, WHOLE * times
        self._path = files.join(staging.progress, f"{name}.{uuid.uuid4().hex}")
        self._interval = _interval(staging)
        self._next, self._told = time.monotonic() + self._interval, 0

    def moved(self, parts: int) -> None:
        """So many parts are done. Raises nothing: work must not fail because nobody can be told of it."""
        if time.monotonic() >= self._next:
            self.ended(parts)

    def ended(self, parts: int) -> None:
        """The work is over, with so many parts. Raises nothing."""
        share = min(WHOLE * parts // self._total, self._most) if self._total > 0 else 0
        if share > self._told:
            with contextlib.suppress(OSError):
                files.write_bytes(self._temporary, self._path, [bytes(share)])
            self._told = share
        self._next = time.monotonic() + self._interval


class BucketsPosition:
    """How far a task of a shuffle is, which learns only from its rows which buckets it has, and how many units those have.

    ``kind`` begins the name of the work, and ``mean`` is the number of units that a bucket has on average (``mean_of``).
    """

    def __init__(self, staging: StagingFolder, kind: str, mean: int) -> None:
        self._staging, self._kind, self._mean = staging, kind, mean
        self._position: Position | None = None
        self._units = 0

    def moved(self, bucket: int, units: int) -> None:
        """So many units more are done, of this bucket. Raises nothing."""
        # Each bucket is one task's, so the first one names the task.
        if self._position is None:
            self._position = Position(self._staging, f"{self._kind}-{bucket}", self._mean, BUCKETS_MOST)
        self._units += units
        self._position.moved(self._units)

    def ended(self) -> None:
        """All of the task is done. Raises nothing."""
        if self._position is not None:
            self._position.ended(self._units)


def mean_of(units: int, buckets: int) -> int:
    """Return the units of a bucket on average, of so many that one bucket alone may have them all."""
    return max(1, units // min(buckets, BUCKETS_MOST))


class Positions:
    """How far all tasks are, as the driver sees it."""

    def __init__(self, staging: StagingFolder) -> None:
        self._folder, self._interval = staging.progress, _interval(staging)
        self._next, self._shares = 0.0, dict[str, float]()

    def shares(self) -> dict[str, float]:
        """Return the share of each work, by its name, that its furthest attempt has done. Raises OSError.

        It is 0 to 1, or more where ``total`` was an average.
        """
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._interval
            for entry in files.listing(self._folder):
                name = entry.name.partition(".")[0]
                self._shares[name] = max(self._shares.get(name, 0.0), entry.size / WHOLE)
        return self._shares
