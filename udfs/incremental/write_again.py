"""What the writers of an incremental build need of stored ranges: which files they touch, and their units of some files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rocketmq_reindex.udfs import files, schemas
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
from rocketmq_reindex.udfs.stage import Stage


@dataclass(frozen=True)
class StoredRange:
    """One range of the log in the scan store: its number in this run, and its entry's files of rows."""

    number: int
    runs: tuple[str, str]
    """path and digest; empty when there are none"""
    units: tuple[str, str]


def stored_range(store: ScanStore, number: int, entry: ScanEntry) -> StoredRange:
    def where(ending: str) -> tuple[str, str]:
        name, _, digest = entry.data.get(ending, ["", 0, ""])
        return (files.join(store.data, name), digest) if name else ("", "")

    return StoredRange(number, where("runs"), where("units"))


def write_ranges(stage: Stage, some: list[StoredRange]) -> str:
    """A plan of these ranges; returns its path."""
    path = files.join(stage.plans, f"stored-{uuid.uuid4().hex}")
    files.write_bytes(stage.temporary, path, [json.dumps([[r.number, r.runs, r.units] for r in some]).encode()])
    return path


def _read_ranges(plan: str) -> list[StoredRange]:
    some = json.loads(files.read_bytes(plan))
    return [StoredRange(number, (runs[0], runs[1]), (units[0], units[1])) for number, runs, units in some]


@dataclass(frozen=True)
class TouchedFiles:
    """Which ConsumeQueue files have units of the ranges of a plan: leaves the keys (``Touched``), and their path as a word."""

    stage: Stage
    plan: str
    tasks: int
    units_per_file: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                found = Touched.union([])
                for one in ranges[task * len(ranges) // self.tasks : (task + 1) * len(ranges) // self.tasks]:
                    if one.runs[0]:
                        found = Touched.union([found, Touched.by(stored_rows(*one.runs), self.units_per_file)])
                path = files.join(self.stage.plans, f"touched-{uuid.uuid4().hex}")
                data = pack_keys(found.queues, found.files, found.batches)
                files.write_bytes(self.stage.temporary, path, [data])
                yield schemas.result([path])


@dataclass(frozen=True)
class LoadRows:
    """The stored units of a plan's ranges that belong into wanted files; into all files when ``wanted`` is empty."""

    plan: str
    tasks: int
    keys: tuple[int, ...]
    units_per_file: int
    wanted: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = _read_ranges(self.plan)
        wanted = Wanted(*unpack_keys(files.read_bytes(self.wanted))) if self.wanted else None
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for one in ranges[task * len(ranges) // self.tasks : (task + 1) * len(ranges) // self.tasks]:
                    if one.units[0] and self._has_some(one, wanted):
                        rows = stored_rows(*one.units)
                        yield from schemas.batches(rows_again(rows, one.number, self.keys, self.units_per_file, wanted))

    def _has_some(self, one: StoredRange, wanted: Wanted | None) -> bool:
        """The runs tell, which are few, whether any of the units is wanted."""
        if wanted is None or not one.runs[0]:
            return wanted is None
        found = Touched.by(stored_rows(*one.runs), self.units_per_file)
        return bool(among(found.queues, wanted.queues).any() or among(found.files, wanted.files).any())
