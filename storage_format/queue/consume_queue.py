"""Make a ConsumeQueue file (RocketMQ ``ConsumeQueue``, 4.9 to 5.5) from units. The layout: ``queue.units``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE

Int64s = npt.NDArray[np.int64]

UNIT: Final = UNIT_LAYOUT.dtype


class UnitGapError(ValueError):
    """The units given for a file are not consecutive. This is an internal error: such a file is never written."""


def file_units(units_per_file: int, file_number: int, rows: Int64s) -> tuple[int, int, npt.NDArray[np.void]]:
    """The units of one file: (first logical byte of the file, bytes used, units of dtype UNIT from the file's start on).

    ``rows``: int64 (4, n) with position in the queue, physical offset, size, tagsCode; all of this file, consecutive, in any
    order. Pre-blank stands before the first (``ConsumeQueue.fillPreBlank`` of 4.9 to 5.5). Raises UnitGapError.
    """
    start = file_number * units_per_file
    position = rows[0] - start
    low, used = int(position.min()), int(position.max()) + 1
    image = np.zeros(used, dtype=UNIT)
    image["size"][:low] = PRE_BLANK_SIZE
    image["phy_offset"][position] = rows[1]
    image["size"][position] = rows[2]
    image["tags_code"][position] = rows[3]
    if low < 0 or used > units_per_file or used - low != rows.shape[1] or not (image["size"] > 0).all():
        raise UnitGapError(f"file {file_number}: {rows.shape[1]} units for positions {low}..{used}")
    return start * UNIT_SIZE, used * UNIT_SIZE, image
