"""Scan ranges of the log: packed cells of units, runs of queue offsets, staged index items and one summary a range."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.index.file import MAKER, STAGED
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec, RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.walk.state import ItemArrays, UnitArrays
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.scan.batch_rows import batch_rows
from rocketmq_reindex.udfs.scan.block_cells import BlockCells
from rocketmq_reindex.udfs.scan.draft_topics import topic_rows
from rocketmq_reindex.udfs.stage import Stage

Watch = Callable[[int, npt.NDArray[np.uint8]], None]
"""Told of bytes of the log that were read, with their absolute offset"""


@dataclass(frozen=True)
class ScanTask:
    """What every scan task gets: ``plan`` is the file of ranges, ``tasks`` how many share them.

    ``keys[b]`` is the number whose Spark hash leads to bucket b's partition.
    """

    stage: Stage
    plan: str
    tasks: int
    settings: ScanSettings
    units_per_file: int
    keys: tuple[int, ...]
    topics: bool = False
    """whether config/topics.json is drafted"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        specs = [RangeSpec(*fields) for fields in json.loads(files.read_bytes(self.plan))]
        scanner = RangeScanner(self.settings)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                low, high = task * len(specs) // self.tasks, (task + 1) * len(specs) // self.tasks
                for spec in specs[low:high]:
                    yield from schemas.batches(self._scan(scanner, spec))

    def _scan(self, scanner: RangeScanner, spec: RangeSpec) -> Iterator[schemas.Row]:
        block_path = files.join(self.stage.blocks, f"{spec.number}-{uuid.uuid4().hex}")
        return self.rows(scanner, spec, self.stage.temporary, block_path)

    def rows(
        self, scanner: RangeScanner, spec: RangeSpec, temporary: str, block_path: str, watch: Watch | None = None
    ) -> Iterator[schemas.Row]:
        """The rows of one range, its summary last; its index items go to ``block_path``. ``watch`` is told what is read."""
        makers: list[npt.NDArray[np.void]] = []
        with files.Reader(spec.path) as reader, files.writing(temporary, block_path, own=True) as writer:

            def read(at: int, out: npt.NDArray[np.uint8]) -> None:
                reader.read_into(at - spec.segment_start, out)
                if watch is not None:
                    watch(at, out)

            def view(at: int, count: int) -> npt.NDArray[np.uint8] | None:
                data = reader.view(at - spec.segment_start, count)
                if data is not None and watch is not None:
                    watch(at, data)
                return data

            for block in scanner.scan(spec, read, view):
                if len(block.items.phy_offset):
                    writer.append(_staged(block.items))
                    makers.append(_makers(block.items))
                yield from self._cells(scanner, spec, block.units)
                yield from batch_rows(scanner, spec.number, block.batches, self.keys)
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
        yield schemas.SUMMARY, 0, 0, spec.number, self.done(summary), 0

    def done(self, summary: RangeSummary) -> bytes:
        """Leave a finished range's summary where the driver sees how far the scan is; returns it as a row's data."""
        text = summary.to_json().encode()
        files.write_bytes(self.stage.temporary, files.join(self.stage.ranges, f"{summary.number}"), [text])
        return text

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, units: UnitArrays) -> Iterator[schemas.Row]:
        if not len(units.phy_offset):
            return
        block, buckets = BlockCells(scanner, units), len(self.keys)
        file_number, pieces = block.pieces(self.units_per_file)
        for number, cell in block.cut(block.bucket(pieces.queue, file_number, buckets), pieces):
            yield schemas.UNITS, number, self.keys[number], spec.number, cell, 0
        runs = block.runs()
        scanner.summary.runs += runs.columns.shape[1]
        for number, cell in block.cut(block.bucket(runs.queue, np.zeros_like(runs.queue), buckets), runs):
            yield schemas.RUNS, number, self.keys[number], spec.number, cell, 0


def _staged(items: ItemArrays) -> npt.NDArray[np.void]:
    out = np.empty(len(items.phy_offset), dtype=STAGED)
    out["phy_offset"], out["time"], out["key_hash"] = items.phy_offset, items.time, items.key_hash
    return out


def _makers(items: ItemArrays) -> npt.NDArray[np.void]:
    out = np.empty(len(items.maker_item), dtype=MAKER)
    out["item"], out["phy_offset"] = items.maker_item, items.maker_phy_offset
    return out
