"""The scan of a verify: as a build's, but all of a queue goes to one task, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSpec
from rocketmq_reindex.storage_format.walk.state import UnitArrays
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.scan.block_cells import BlockCells, Pieces
from rocketmq_reindex.udfs.scan.ranges import ScanTask

GROUPS: Final = 4096
"""Queues are dealt out to so many buckets, each with its queues as a whole: a reducer has one bucket's queues open at once."""
ANY_FILE: Final = 1 << 62
"""units per file when files do not matter"""
AT_FILES, AT_RUNS = -2, -1
"""Rows of a bucket come by ``place``: first the files of its queues, then the runs, then units in the order of the log."""


@dataclass(frozen=True)
class VerifyScan(ScanTask):
    """``units_per_file`` is ANY_FILE."""

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, units: UnitArrays) -> Iterator[schemas.Row]:
        if not len(units.phy_offset):
            return
        block = BlockCells(scanner, units)

        def cells(pieces: Pieces, first: int, step: int) -> Iterator[schemas.Row]:
            group = block.bucket(pieces.queue, np.zeros_like(pieces.queue), GROUPS)
            for number, (bucket, cell) in enumerate(block.cut(group, pieces)):
                yield schemas.UNITS, bucket, self.keys[bucket % len(self.keys)], spec.number, cell, first + step * number

        yield from cells(block.runs(), AT_RUNS, 0)
        _, pieces = block.pieces(ANY_FILE)
        # There are fewer cells than records, and a record has more than one byte: these places rise.
        yield from cells(pieces, int(units.phy_offset[0]), 1)
