"""Scan ranges of the commitlog: cells of units, runs of queue offsets, staged index items, and one summary for each range."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.walk.state import UnitArrays
from rocketmq_reindex.udfs import files, plans, schemas
from rocketmq_reindex.udfs.progress import Position
from rocketmq_reindex.udfs.scan.rows import BlockCells, batch_rows, delay_rows, topic_rows
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader, Watch
from rocketmq_reindex.udfs.staging import StagingFolder


@dataclass(frozen=True)
class ScanTask:
    """Scans a task's share of the ranges; leaves rows (``schemas.Row``), of each range its SUMMARY last.

    ``plan`` is the plan of ``RangeSpec`` (``plans.write_plan``) that ``tasks`` tasks share. ``units_per_file`` is the size of a
    ConsumeQueue file in units, ``keys[b]`` the number whose Spark hash leads to the partition of bucket b.
    """

    staging: StagingFolder
    plan: str
    tasks: int
    settings: ScanSettings
    units_per_file: int
    keys: tuple[int, ...]
    topics: bool = False
    """whether rows of TOPICS are wanted, for a draft of config/topics.json"""
    log_bytes: int = 0
    """bytes of all ranges of the plan: what no page cache holds is not kept there"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scanner = RangeScanner(self.settings)
        for spec in self.specs(batches):
            yield from schemas.batches(self._scan(scanner, spec))

    def specs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RangeSpec]:
        """The ranges of the tasks whose numbers are in ``batches``."""
        planned = [RangeSpec(*fields) for fields in plans.read_plan(self.plan)]
        for task in plans.numbers(batches):
            yield from plans.share(planned, task, self.tasks)

    def _scan(self, scanner: RangeScanner, spec: RangeSpec) -> Iterator[schemas.Row]:
        block_path = files.join(self.staging.blocks, f"{spec.number}-{uuid.uuid4().hex}")
        return self.rows(scanner, spec, self.staging.temporary, block_path)

    def rows(
        self, scanner: RangeScanner, spec: RangeSpec, temporary: str, block_path: str, watch: Watch | None = None
    ) -> Iterator[schemas.Row]:
        """The rows of the range ``spec``, its SUMMARY last.

        Its index items (dtype STAGED, then a table of dtype MAKER) go to the file ``block_path``, which is written by way of
        the folder ``temporary``. ``watch`` gets the bytes that are read.
        """
        makers: list[npt.NDArray[np.void]] = []
        position = Position(self.staging, f"{spec.number}", spec.high - spec.low)

        def seen(at: int, data: npt.NDArray[np.uint8]) -> None:
            position.moved(at - spec.low)
            if watch is not None:
                watch(at, data)

        let_go = files.outgrows_cache(self.log_bytes)
        segment = SegmentReader(spec.path, spec.segment_start, seen, min(spec.high, spec.data_end), let_go)
        with segment, files.writing(temporary, block_path) as writer:
            for block in scanner.scan(spec, segment.read, segment.view):
                if len(block.items.staged):
                    writer.append(block.items.staged)
                    # The next block overwrites them.
                    makers.append(block.items.makers.copy())
                yield from self._cells(scanner, spec, block.units)
                yield from batch_rows(scanner, spec.number, block.batches, self.keys)
                if self.settings.want_messages:
                    yield from delay_rows(block, spec.number, self.keys)
            summary = scanner.summary
            if summary.items:
                table = np.concatenate(makers)
                summary.makers = len(table)
                writer.append(table)
                writer.finish()
                summary.block = block_path
            else:
                writer.abandon()
        if self.topics:
            yield from topic_rows(scanner, spec.number, self.keys)
        yield schemas.summary(spec.number, self.done(summary))

    def done(self, summary: RangeSummary) -> bytes:
        """Stage a range's summary, by which the driver sees how far the scan is; returns it as the data of a row."""
        text = summary.to_json().encode()
        files.write_bytes(self.staging.temporary, files.join(self.staging.ranges, f"{summary.number}"), [text])
        return text

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, units: UnitArrays) -> Iterator[schemas.Row]:
        if not len(units.phy_offset):
            return
        block, buckets = BlockCells(scanner, units), len(self.keys)
        file_number, pieces = block.pieces(self.units_per_file)
        for number, cell in block.cut(block.bucket(pieces.queue, file_number, buckets), pieces):
            yield schemas.Row(schemas.UNITS, number, self.keys[number], spec.number, cell)
        yield from self._runs(scanner, spec, block)

    def _runs(self, scanner: RangeScanner, spec: RangeSpec, block: BlockCells) -> Iterator[schemas.Row]:
        """Rows of RUNS: those of a queue go to one bucket."""
        runs = block.runs()
        scanner.summary.runs += runs.columns.shape[1]
        for number, cell in block.cut(block.bucket(runs.queue, np.zeros_like(runs.queue), len(self.keys)), runs):
            yield schemas.Row(schemas.RUNS, number, self.keys[number], spec.number, cell)
