"""Rows of the records that show which delayed messages were delivered. All of a digest go to one task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, read_evidence
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.udfs import schemas

_CELL_ROWS: Final = (1 << 20) // EVIDENCE.itemsize


def delay_rows(block: Block, number: int, keys: tuple[int, ...]) -> Iterator[schemas.Row]:
    """Rows of DELAYED from one scanned block of range ``number``: cells of EVIDENCE. ``keys[b]`` is the key of bucket b."""
    rows = read_evidence(block.data, block.base, block.messages)
    bucket = rows["digest"] % len(keys)
    order = np.argsort(bucket, kind="stable")
    rows, bounds = rows[order], np.searchsorted(bucket[order], np.arange(len(keys) + 1))
    for target in np.flatnonzero(np.diff(bounds)).tolist():
        for low in range(int(bounds[target]), int(bounds[target + 1]), _CELL_ROWS):
            cell = rows[low : min(low + _CELL_ROWS, int(bounds[target + 1]))].tobytes()
            yield schemas.Row(schemas.DELAYED, target, keys[target], number, cell)
