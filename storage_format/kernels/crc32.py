"""CRC-32 (IEEE, reflected, as ``java.util.zip.CRC32``) inside compiled loops: of a stretch, and of many ranges of one
buffer.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.compiler import CAN_FOLD, FOLD_MIN, STEP, fold
from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit

# ------------------------------------------------------------------------------------------------------------------------ crc32
# Long runs of bytes are folded by carry-less multiplication where the processor has it (``compiler``); tables do the rest.

POLYNOMIAL: Final = 0xEDB88320
LOW31: Final = 0x7FFFFFFF
"""``UtilAll.crc32`` keeps the low 31 bits."""


def _tables() -> npt.NDArray[np.uint32]:
    """Return sixteen tables of 256: table k moves a byte's remainder k bytes further on."""
    tables = np.zeros((16, 256), dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(POLYNOMIAL), values >> 1).astype(np.uint32)
    tables[0] = values
    for k in range(1, 16):
        tables[k] = (tables[k - 1] >> 8) ^ values[tables[k - 1] & 0xFF]
    return tables


TABLES: Final = _tables()


@inlined
def _step(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the register after sixteen bytes, given as four little-endian words; the register before is XORed into the
    first."""
    t, low = TABLES, np.uint32(0xFF)
    return np.uint32(
        t[15, a & low] ^ t[14, (a >> np.uint32(8)) & low] ^ t[13, (a >> np.uint32(16)) & low] ^ t[12, a >> np.uint32(24)]
        ^ t[11, b & low] ^ t[10, (b >> np.uint32(8)) & low] ^ t[9, (b >> np.uint32(16)) & low] ^ t[8, b >> np.uint32(24)]
        ^ t[7, c & low] ^ t[6, (c >> np.uint32(8)) & low] ^ t[5, (c >> np.uint32(16)) & low] ^ t[4, c >> np.uint32(24)]
        ^ t[3, d & low] ^ t[2, (d >> np.uint32(8)) & low] ^ t[1, (d >> np.uint32(16)) & low] ^ t[0, d >> np.uint32(24)]
    )  # fmt: skip


@inlined
def _word(data: npt.NDArray[np.uint8], at: int) -> Any:
    return np.uint32(
        np.uint32(data[at])
        | (np.uint32(data[at + 1]) << np.uint32(8))
        | (np.uint32(data[at + 2]) << np.uint32(16))
        | (np.uint32(data[at + 3]) << np.uint32(24))
    )


@inlined
def crc32_by(data: npt.NDArray[np.uint8], start: int, end: int, folding: bool) -> int:
    """Return ``crc32``; without ``folding`` by tables alone, as on a processor that has no carry-less multiplication."""
    crc = np.uint32(0xFFFFFFFF)
    at = start
    # A condition of its own, so that numba leaves the branch out where it is false.
    if CAN_FOLD:  # noqa: SIM102
        if folding and end - at >= FOLD_MIN:
            blocks = (end - at) // STEP
            skip = -(end - at) % STEP
            if skip and start >= STEP:
                # Bytes before the first one are read, and passed over.
                return int(fold(data, start - skip, skip, blocks + 1) ^ np.uint32(0xFFFFFFFF))
            crc = fold(data, at, 0, blocks)
            at += STEP * blocks
    while at + STEP <= end:
        crc = _step(crc ^ _word(data, at), _word(data, at + 4), _word(data, at + 8), _word(data, at + 12))
        at += STEP
    while at < end:
        crc = (crc >> np.uint32(8)) ^ TABLES[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return int(crc ^ np.uint32(0xFFFFFFFF))


@inlined
def crc32(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return CRC-32 of ``data[start:end]``: 32 bits, unsigned, as int64."""
    return crc32_by(data, start, end, True)


# ------------------------------------------------------------------------------------------------------------------- crc ranges
# CRC-32 of many ranges of one buffer, each at the same small cost however long it is.
#
# In bytes that someone made up, a search may meet as many heads of records as there are bytes, each of a record that reaches to
# the end: to sum up all of them would take days for a gigabyte. Sums of the buffer up to every STEP bytes give the sum of any
# range: the CRC of two parts together is that of the first, moved on over as many zeros as the second has bytes, plus that of
# the second.

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int64]

SUM_STEP: Final = 4096
_TOP: Final = 0x80000000


@jit
def _times(a: int, b: int) -> int:
    """Return the product of two remainders modulo the polynomial, bits reflected."""
    product, bit = np.int64(0), np.int64(_TOP)
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return int(product)


def _powers() -> Sums:
    """Return x to the power of 8, 16, 32, ...: over 1, 2, 4, ... bytes."""
    # Plain Python: the first compiled loop that a process calls costs it 0.4 s, and many commands call none.
    times = getattr(_times, "py_func", _times)
    powers = [0x00800000]  # x^8, the highest bit being x^0
    for _ in range(40):
        powers.append(int(times(powers[-1], powers[-1])))
    return np.array(powers, np.int64)


_POWERS: Final = _powers()


@jit
def moved_on(crc: int, length: int) -> int:
    """Return what ``crc`` contributes to the CRC of the whole once ``length`` bytes follow."""
    k = 0
    while length:
        if length & 1:
            crc = _times(_POWERS[k], crc)
        length >>= 1
        k += 1
    return crc


def warm_up() -> None:
    """Load what numba loads at the first call of a compiled loop, which takes 0.4 s: once, ahead of the workers' forks."""
    moved_on(0, 0)


@allocating
def prefix_sums(data: Bytes, filled: int) -> Sums:
    """Return CRC-32 of the first 0, STEP, 2 STEP, ... bytes of ``data[:filled]``."""
    sums = np.zeros(filled // SUM_STEP + 1, np.int64)
    step = _POWERS[12]
    for k in range(1, len(sums)):
        sums[k] = _times(step, sums[k - 1]) ^ crc32(data, (k - 1) * SUM_STEP, k * SUM_STEP)
    return sums


@jit
def _sum_to(data: Bytes, sums: Sums, end: int) -> int:
    k = end // SUM_STEP
    return moved_on(sums[k], end - k * SUM_STEP) ^ crc32(data, k * SUM_STEP, end)


@jit
def crc32_of_range(data: Bytes, sums: Sums, start: int, end: int) -> int:
    """Return ``crc32(data, start, end)`` by the ``prefix_sums`` of the data."""
    return int(_sum_to(data, sums, end) ^ moved_on(_sum_to(data, sums, start), end - start))
