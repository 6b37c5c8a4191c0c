"""What an incremental build needs of stored ranges before it writes: which files they touch, and their units of some files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from rocketmq_reindex.udfs import files, plans, results, schemas
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore
from rocketmq_reindex.udfs.incremental.stored_rows import (
    Touched,
    Wanted,
    among,
    pack_keys,
    rows_again,
    stored_rows,
    unpack_keys,
)
from rocketmq_reindex.udfs.staging import StagingFolder


class RowsFile(NamedTuple):
    """A file of rows (``stored_rows``); both are "" when there are no rows."""

    path: str = ""
    digest: str = ""


class StoredRange(NamedTuple):
    """One range of the log in the scan store: its number in this run, and its files of rows."""

    number: int
    runs: RowsFile
    units: RowsFile


def stored_range(store: ScanStore, number: int, entry: ScanEntry) -> StoredRange:
    """The range of an entry of the store, as range ``number`` of this run."""

    def file(ending: str) -> RowsFile:
        kept = entry.data.get(ending)
        return RowsFile(files.join(store.data, kept.name), kept.digest) if kept else RowsFile()

    return StoredRange(number, file("runs"), file("units"))


def write_ranges(staging: StagingFolder, some: list[StoredRange]) -> str:
    """Write a plan of these ranges; returns its path."""
    return plans.write_plan(staging, f"stored-{uuid.uuid4().hex}", some)


def _read_ranges(plan: str) -> list[StoredRange]:
    return [StoredRange(number, RowsFile(*runs), RowsFile(*units)) for number, runs, units in plans.read_plan(plan)]


@dataclass(frozen=True)
class TouchedFiles:
    """Finds the ConsumeQueue files with units of a plan's ranges, which ``tasks`` tasks share.

    Each task stages the keys (``Touched``, by ``pack_keys``), and leaves their path as its result.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    units_per_file: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        for task in plans.numbers(batches):
            found = Touched.union([])
            for one in plans.share(ranges, task, self.tasks):
                if one.runs.path:
                    found = Touched.union([found, Touched.by(stored_rows(*one.runs), self.units_per_file)])
            path = files.join(self.staging.plans, f"touched-{uuid.uuid4().hex}")
            data = pack_keys(found.queues, found.files, found.batches)
            files.write_bytes(self.staging.temporary, path, [data])
            yield results.texts_batch([path])


@dataclass(frozen=True)
class LoadRows:
    """Loads the stored rows of a plan's ranges, which ``tasks`` tasks share, that go into wanted files.

    ``wanted`` is the path of the packed keys of ``Wanted``; "" loads all rows. ``keys[b]`` is the key of bucket b.
    """

    plan: str
    tasks: int
    keys: tuple[int, ...]
    units_per_file: int
    wanted: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        wanted = Wanted(*unpack_keys(files.read_bytes(self.wanted))) if self.wanted else None
        for task in plans.numbers(batches):
            for one in plans.share(ranges, task, self.tasks):
                if one.units.path and self._has_some(one, wanted):
                    rows = stored_rows(*one.units)
                    yield from schemas.batches(rows_again(rows, one.number, self.keys, self.units_per_file, wanted))

    def _has_some(self, one: StoredRange, wanted: Wanted | None) -> bool:
        """Whether any of a range's units is wanted: its runs, which are few, show that."""
        if wanted is None or not one.runs.path:
            return wanted is None
        found = Touched.by(stored_rows(*one.runs), self.units_per_file)
        return bool(among(found.queues, wanted.queues).any() or among(found.files, wanted.files).any())
