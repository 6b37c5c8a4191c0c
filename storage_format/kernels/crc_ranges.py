"""CRC-32 of many ranges of one buffer, each at the same small cost however long it is.

In bytes that someone made up, a search may meet as many heads of records as there are bytes, each of a record that reaches to
the end: to sum up all of them would take days for a gigabyte. Sums of the buffer up to every STEP bytes give the sum of any
range: the CRC of two parts together is that of the first, moved on over as many zeros as the second has bytes, plus that of the
second.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.crc32 import POLYNOMIAL, crc32
from rocketmq_reindex.storage_format.kernels.jit import allocating, jit

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int64]

STEP: Final = 4096
_TOP: Final = 0x80000000


@jit
def _times(a: int, b: int) -> int:
    """Product of two remainders modulo the polynomial, bits reflected."""
    product, bit = np.int64(0), np.int64(_TOP)
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return int(product)


def _powers() -> Sums:
    """x to the power of 8, 16, 32, ...: over 1, 2, 4, ... bytes."""
    powers = [0x00800000]  # x^8, the highest bit being x^0
    for _ in range(40):
        powers.append(int(_times(powers[-1], powers[-1])))
    return np.array(powers, np.int64)


_POWERS: Final = _powers()


@jit
def moved_on(crc: int, length: int) -> int:
    """What ``crc`` contributes to the CRC of the whole once ``length`` bytes follow."""
    k = 0
    while length:
        if length & 1:
            crc = _times(_POWERS[k], crc)
        length >>= 1
        k += 1
    return crc


@allocating
def prefix_sums(data: Bytes, filled: int) -> Sums:
    """CRC-32 of the first 0, STEP, 2 STEP, ... bytes of ``data[:filled]``."""
    sums = np.zeros(filled // STEP + 1, np.int64)
    step = _POWERS[12]
    for k in range(1, len(sums)):
        sums[k] = _times(step, sums[k - 1]) ^ crc32(data, (k - 1) * STEP, k * STEP)
    return sums


@jit
def _sum_to(data: Bytes, sums: Sums, end: int) -> int:
    k = end // STEP
    return moved_on(sums[k], end - k * STEP) ^ crc32(data, k * STEP, end)


@jit
def crc32_of_range(data: Bytes, sums: Sums, start: int, end: int) -> int:
    """``crc32(data, start, end)`` by the ``prefix_sums`` of the data."""
    return int(_sum_to(data, sums, end) ^ moved_on(_sum_to(data, sums, start), end - start))
