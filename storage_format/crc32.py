"""CRC-32 (IEEE, reflected: ``java.util.zip.CRC32``) sixteen bytes at a step, for use inside compiled loops."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage_format.jit import jit

POLYNOMIAL: Final = 0xEDB88320
LOW31: Final = 0x7FFFFFFF
"""``UtilAll.crc32`` keeps the low 31 bits."""


def _tables() -> npt.NDArray[np.uint32]:
    """Sixteen tables of 256: table k moves a byte's remainder k bytes further on."""
    tables = np.zeros((16, 256), dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(POLYNOMIAL), values >> 1).astype(np.uint32)
    tables[0] = values
    for k in range(1, 16):
        tables[k] = (tables[k - 1] >> 8) ^ values[tables[k - 1] & 0xFF]
    return tables


TABLES: Final = _tables()


@jit
def crc32(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """CRC-32 of ``data[start:end]``: 32 bits, unsigned, as int64."""
    t = TABLES
    crc = np.uint32(0xFFFFFFFF)
    at = start
    while at + 16 <= end:
        a = crc ^ (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        crc = (
            t[15, a & np.uint32(0xFF)]
            ^ t[14, (a >> np.uint32(8)) & np.uint32(0xFF)]
            ^ t[13, (a >> np.uint32(16)) & np.uint32(0xFF)]
            ^ t[12, a >> np.uint32(24)]
            ^ t[11, data[at + 4]]
            ^ t[10, data[at + 5]]
            ^ t[9, data[at + 6]]
            ^ t[8, data[at + 7]]
            ^ t[7, data[at + 8]]
            ^ t[6, data[at + 9]]
            ^ t[5, data[at + 10]]
            ^ t[4, data[at + 11]]
            ^ t[3, data[at + 12]]
            ^ t[2, data[at + 13]]
            ^ t[1, data[at + 14]]
            ^ t[0, data[at + 15]]
        )
        at += 16
    while at < end:
        crc = (crc >> np.uint32(8)) ^ t[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return int(crc ^ np.uint32(0xFFFFFFFF))
