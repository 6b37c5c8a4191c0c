"""The scan of a verify: as a build's, but all of a queue goes to one task, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage_format.grouping import QueueBlock, bucket_of, cut_cells
from storage_format.range_scan import RangeScanner
from storage_format.range_summary import RangeSpec
from storage_format.walk_state import UnitArrays
from udfs import schemas
from udfs.scan import ScanTask

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
        if not len(units.place):
            return
        queues = scanner.queue_count
        block = QueueBlock(*units, queues)
        names = scanner.queues.name[:queues].astype(np.int64)
        ids = scanner.queues.queue_id[:queues]
        texts = [scanner.names.texts[k].encode() for k in range(len(scanner.names.texts))]
        group = bucket_of(scanner.names.crc[names], ids, np.zeros(queues, np.int64), GROUPS)

        def cells(queue: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64],
                  columns: npt.NDArray[np.int64], first: int, step: int) -> Iterator[schemas.Row]:  # fmt: skip
            cut = cut_cells(group[queue], texts, names[queue], ids[queue], starts, counts, columns)
            for number, (bucket, cell) in enumerate(cut):
                yield schemas.UNITS, bucket, self.keys[bucket % len(self.keys)], spec.number, cell, first + step * number

        queue, columns = block.runs()
        present, starts, counts = np.unique(queue, return_index=True, return_counts=True)
        yield from cells(present, starts, counts, columns, AT_RUNS, 0)
        queue, _, starts, counts = block.pieces(ANY_FILE)
        # There are fewer cells than records, and a record has more than one byte: these places rise.
        yield from cells(queue, starts, counts, block.columns, int(units.place[0]), 1)
