"""Where the properties that matter here lie in a record (``MessageDecoder.string2messageProperties`` of 4.9 to 5.5).

``name 0x01 value 0x02 ...``: the last 0x02 may be missing, a piece counts only if name and value have at least one character
each, a value runs to the next 0x02 and may hold 0x01, and of a repeated name the last one wins. A malformed sequence never
includes an ASCII byte, so the raw bytes split exactly where the decoded text would.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined

NAMES: Final = (
    b"KEYS",
    b"UNIQ_KEY",
    b"TAGS",
    b"DELAY",
    b"INNER_NUM",
    b"INNER_BASE",
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
    b"__CRC32#",
)
KEYS, UNIQ_KEY, TAGS, DELAY, INNER_NUM, INNER_BASE, MULTI_DISPATCH, MULTI_OFFSET, CRC32 = range(len(NAMES))

PROPERTY_SEPARATOR: Final = 2

_LONGEST: Final = max(len(name) for name in NAMES)
_TEXT: Final = np.array([list(name.ljust(_LONGEST, b"\0")) for name in NAMES], dtype=np.uint8)
_LENGTH: Final = np.array([len(name) for name in NAMES], dtype=np.int64)


@inlined
def _name_number(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Which of NAMES ``data[start:end]`` is, or -1."""
    length = end - start
    for number in range(len(_LENGTH)):
        if _LENGTH[number] != length:
            continue
        k = 0
        while k < length and data[start + k] == _TEXT[number, k]:
            k += 1
        if k == length:
            return number
    return -1


@inlined
def scan_properties(data: npt.NDArray[np.uint8], start: int, end: int, spans: npt.NDArray[np.int64]) -> None:
    """Set ``spans`` to start and end of the value of each of NAMES in ``data[start:end]``; a start is -1 where there is none.

    ``spans``: int64 (2 * len(NAMES),), indexes into ``data``.
    """
    for k in range(0, len(spans), 2):
        spans[k] = -1
    at = start
    while at < end:
        split = at
        while split < end and data[split] > 2:
            split += 1
        # The first 0x01 ends the name; a 0x00 belongs to it, a 0x02 ends the piece.
        while split < end and data[split] == 0:
            split += 1
            while split < end and data[split] > 2:
                split += 1
        if split >= end:
            return
        if data[split] == PROPERTY_SEPARATOR:
            at = split + 1
            continue
        stop = split + 1
        while stop < end and data[stop] != PROPERTY_SEPARATOR:
            stop += 1
        if split > at and stop > split + 1:
            number = _name_number(data, at, split)
            if number >= 0:
                spans[2 * number] = split + 1
                spans[2 * number + 1] = stop
        at = stop + 1
