"""The scan of a verify. Unlike a build's, it sends all units of a queue to one task, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.walk.state import UnitArrays
from rocketmq_reindex.udfs import schemas
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.scan.rows import BlockCells, Pieces

GROUPS: Final = 4096
"""Buckets that queues are spread over, each as a whole; a reducing task has the queues of one bucket open at a time."""
ANY_FILE: Final = 1 << 62
"""Units in a file where files do not matter."""
FILES_FIRST, RUNS_NEXT = -2, -1
"""Sort keys: first come the files of a bucket's queues, then the runs, then the units in the order of the log."""


@dataclass(frozen=True)
class VerifyScan(ScanTask):
    """As ``ScanTask``, with ``units_per_file`` ANY_FILE; runs are rows of UNITS, too, with the sort key RUNS_NEXT."""

    compares: bool = True
    """whether queues are compared; else only their order is decided, and there are no rows of UNITS"""

    def _cells(self, scanner: RangeScanner, spec: RangeSpec, units: UnitArrays) -> Iterator[schemas.Row]:
        if not len(units.phy_offset):
            return
        block = BlockCells(scanner, units)
        yield from self._runs(scanner, spec, block)
        if not self.compares:
            return

        def cells(pieces: Pieces, first: int, step: int) -> Iterator[schemas.Row]:
            group = block.bucket(pieces.queue, np.zeros_like(pieces.queue), GROUPS)
            for number, (bucket, cell) in enumerate(block.cut(group, pieces)):
                key = self.keys[bucket % len(self.keys)]
                yield schemas.Row(schemas.UNITS, bucket, key, spec.number, cell, first + step * number)

        yield from cells(block.runs(), RUNS_NEXT, 0)
        _, pieces = block.pieces(ANY_FILE)
        # There are fewer cells than records, and a record has more than one byte: so the sort keys ascend.
        yield from cells(pieces, int(units.phy_offset[0]), 1)
