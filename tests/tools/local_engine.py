"""The engine of a build without Spark: the same functions over the same rows, in this process, one after another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketmq_reindex.jobs.api.running import make_build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
from rocketmq_reindex.jobs.engines.engine import Engine, Engines
from rocketmq_reindex.jobs.engines.local import cores_of
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.repairing.options import RepairSettings
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.staging import StagingFolder


class InlineEngine:
    """Mirrors SparkEngine: ``partitions`` tasks reduce ``bucket_count`` buckets."""

    def __init__(self, bucket_count: int = 2, partitions: int = 2, cores: int = 2) -> None:
        self.cores = cores
        self._buckets, self._partitions = bucket_count, partitions
        self._rows: list[handover.Row] = []

    @property
    def is_here(self) -> bool:
        return True

    def buckets(self, wanted: int, staging: StagingFolder) -> tuple[int, ...]:
        _ = staging
        return tuple(k % self._partitions for k in range(max(self._buckets, wanted)))

    @staticmethod
    def _numbers(count: int) -> Iterator[pa.RecordBatch]:
        for k in range(count):
            yield pa.RecordBatch.from_arrays([pa.array([k], pa.int64())], ["id"])

    def scan(self, function: Batches, tasks: int) -> list[bytes]:
        found = []
        for one in self._numbers(tasks):
            for batch in function(iter([one])):
                for row in handover.rows_of(batch):
                    if row.kind == handover.SUMMARY:
                        found.append(row.data)
                    else:
                        self._rows.append(row)
        return found

    def _of(self, kind: int, left_out: list[int]) -> list[handover.Row]:
        out = set(left_out)
        return [row for row in self._rows if row.kind == kind and row.range_number not in out]

    def collect(self, kind: int, left_out: list[int]) -> list[bytes]:
        return [row.data for row in self._of(kind, left_out)]

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        rows = self._of(kind, left_out)
        if before is not None:
            rows = [row for batch in before(handover.batches(rows)) for row in handover.rows_of(batch)]
        texts: list[str] = []
        for key in range(self._partitions):
            mine = sorted((row for row in rows if row.key == key), key=lambda row: (row.bucket, row.sort_key))
            for batch in reducer(handover.batches(mine)):
                texts += batch.column(0).to_pylist()
        return texts

    def numbers(self, function: Batches, count: int) -> list[str]:
        return [text for one in self._numbers(count) for batch in function(iter([one])) for text in batch.column(0).to_pylist()]

    def each_number(self, function: Batches, count: int) -> Iterator[str]:
        yield from self.numbers(function, count)

    def forget(self) -> None:
        self._rows = []

    def give_up(self) -> None:
        """Nothing goes on in other threads that would not end by itself."""


class QuietReporter(Reporter):
    """Says nothing."""

    def __init__(self) -> None:
        super().__init__([])


class LinesReporter(QuietReporter):
    """Keeps the lines of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)


def local_build(store: Path | str, out: Path, engine: Engine | None = None, **settings: Any) -> BuildResult:
    """A whole build in this process; the summary holds the exit status and the error, as the command line would say.

    Sizes and a version that are given are named, as on the command line.
    """
    settings.setdefault("named", frozenset((*SIZES, "broker_version")) & settings.keys())
    return run_build(BuildSettings(store=str(store), out=str(out), **settings).check(), single(engine or InlineEngine()))


def local_repair(store: Path | str, out: Path | str, engine: Engine | None = None, **settings: Any) -> RepairResult:
    """A whole repair in this process, likewise."""
    settings.setdefault("named", frozenset((*SIZES, "broker_version")) & settings.keys())
    checked = RepairSettings(store=str(store), out=str(out), **settings).check()
    told = run_build(checked, single(engine or InlineEngine()))
    assert isinstance(told, RepairResult)
    return told


class InlineEngines:
    """Stands for ``LocalEngines``: the engine of ``--engine local``, in this process: it starts at once."""

    def __init__(self, command: str, master: str = "") -> None:
        _ = command, cores_of(master)

    def start(self) -> None:
        """Nothing is to be started."""

    def __enter__(self) -> InlineEngines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be ended."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        yield InlineEngine()


def single(engine: Engine) -> Engines:
    """Opens ``engine`` for a run, and leaves it open."""

    @contextlib.contextmanager
    def engines() -> Iterator[Engine]:
        yield engine

    return engines


def run_build(settings: BuildSettings, engines: Engines, reporter: Reporter | None = None) -> BuildResult:
    """A whole build, or repair, on whatever engine ``engines`` opens."""
    job = make_build(settings, reporter or QuietReporter(), engines)
    try:
        job.run()
    except ReindexError as error:
        job.result.exit, job.result.error = error.exit_status, str(error)
    return job.result
