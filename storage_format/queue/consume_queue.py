"""Make a ConsumeQueue file (RocketMQ ``ConsumeQueue``, 4.9 to 5.5) from units. The layout: ``queue.units``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.words import swapped32
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE

Int64s = npt.NDArray[np.int64]

UNIT: Final = UNIT_LAYOUT.dtype


class UnitGapError(ValueError):
    """The units given for a file are not consecutive. This is an internal error: such a file is never written."""


@jit
def _put_units(
    start: int, position: Int64s, phy_offset: Int64s, size: Int64s, tags_code: Int64s, out: npt.NDArray[np.uint32]
) -> int:
    """Put units into ``out``, the file's units as words; returns how many places they took that were free."""
    taken = 0
    for i in range(len(position)):
        k = position[i] - start
        if out[k, 2] == 0 and size[i] > 0:
            taken += 1
        out[k, 0] = swapped32(phy_offset[i] >> 32)
        out[k, 1] = swapped32(phy_offset[i])
        out[k, 2] = swapped32(size[i])
        out[k, 3] = swapped32(tags_code[i] >> 32)
        out[k, 4] = swapped32(tags_code[i])
    return taken


def file_units(units_per_file: int, file_number: int, parts: Sequence[Int64s]) -> tuple[int, int, npt.NDArray[np.void]]:
    """The units of one file: (first logical byte of the file, bytes used, units of dtype UNIT from the file's start on).

    ``parts``: each int64 (4, n) with position in the queue, physical offset, size, tagsCode; all of this file, together
    consecutive, in any order. Pre-blank stands before the first (``ConsumeQueue.fillPreBlank`` of 4.9 to 5.5). Raises
    UnitGapError.
    """
    start = file_number * units_per_file
    low = min(int(rows[0].min()) for rows in parts) - start
    used = max(int(rows[0].max()) for rows in parts) - start + 1
    count = sum(rows.shape[1] for rows in parts)
    image = np.zeros(used if low >= 0 and used - low == count else 0, dtype=UNIT)
    taken = 0
    if len(image):
        image["size"][:low] = PRE_BLANK_SIZE
        words = image.view(np.uint32).reshape(-1, UNIT_SIZE // 4)
        for rows in parts:
            position, phy_offset, size, tags_code = (np.ascontiguousarray(column) for column in rows)
            taken += _put_units(start, position, phy_offset, size, tags_code, words)
    if used > units_per_file or taken != count:
        raise UnitGapError(f"file {file_number}: {counted(count, 'unit')} for positions {low}..{used}")
    return start * UNIT_SIZE, used * UNIT_SIZE, image
