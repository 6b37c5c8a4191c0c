"""Where the properties that matter here lie in a record (``MessageDecoder.string2messageProperties`` of 4.9 to 5.5).

``name 0x01 value 0x02 ...``: the last 0x02 may be missing, a piece counts only if name and value have at least one character
each, a value runs to the next 0x02 and may hold 0x01, and of a repeated name the last one wins. A malformed sequence never
includes an ASCII byte, so the raw bytes split exactly where the decoded text would.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.kernels.words import (
    BLOCK,
    CAN_LOAD,
    WORD,
    bits_between,
    byte_at,
    find_byte,
    load_word,
    lowest_bit,
)

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

NAME_SEPARATOR: Final = 1
PROPERTY_SEPARATOR: Final = 2

_LONGEST: Final = max(len(name) for name in NAMES)
_TEXT: Final = np.array([list(name.ljust(_LONGEST, b"\0")) for name in NAMES], dtype=np.uint8)
_LENGTH: Final = np.array([len(name) for name in NAMES], dtype=np.int64)
_WORD: Final = np.array([int.from_bytes(name[:WORD].rjust(WORD, b"\0"), "little", signed=True) for name in NAMES], np.int64)
"""The names of up to a word as the last bytes of one"""


@inlined
def number_of_name(
    data: npt.NDArray[np.uint8], start: int, end: int, texts: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]
) -> int:
    """Return which of the names in ``texts``, uint8 (names, longest), ``data[start:end]`` is, or -1. ``lengths`` is int64
    (names,)."""
    length = end - start
    for number in range(len(lengths)):
        if lengths[number] != length:
            continue
        k = 0
        while k < length and data[start + k] == texts[number, k]:
            k += 1
        if k == length:
            return number
    return -1


@inlined
def _name_number(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return which of NAMES ``data[start:end]`` is, or -1."""
    length = end - start
    if CAN_LOAD:  # noqa: SIM102  # a condition of its own: see kernels.crc32
        if length <= WORD and start + WORD <= len(data):
            word = load_word(data, start) << 8 * (WORD - length)
            for number in range(len(_LENGTH)):
                if _WORD[number] == word and _LENGTH[number] == length:
                    return number
            return -1
    return int(number_of_name(data, start, end, _TEXT, _LENGTH))


@inlined
def next_piece(data: npt.NDArray[np.uint8], start: int, end: int) -> tuple[int, int, int]:
    """Return where the next piece of ``data[start:end]`` that counts has its name, its 0x01 and its end; ``end`` for none."""
    at = start
    while at < end:
        split = find_byte(data, at, end, NAME_SEPARATOR, PROPERTY_SEPARATOR)
        if split >= end:
            break
        if data[split] == PROPERTY_SEPARATOR:
            at = split + 1
            continue
        stop = find_byte(data, split + 1, end, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        if split > at and stop > split + 1:
            return at, split, stop
        at = stop + 1
    return end, end, end


@inlined
def scan_properties(data: npt.NDArray[np.uint8], start: int, end: int, spans: npt.NDArray[np.int64]) -> None:
    """Set ``spans`` to start and end of the value of each of NAMES in ``data[start:end]``; a start is -1 where there is none.

    ``spans``: int64 (2 * len(NAMES),), indexes into ``data``.
    """
    for k in range(2 * len(NAMES)):
        spans[k] = -1
    # Of the bytes from ``block`` up to ``known``, a bit each: which are separators, and which end a property.
    block = known = start
    separators = ends = np.int64(0)
    at = start
    while at < end:
        if CAN_LOAD:  # noqa: SIM102
            if at >= known and at + BLOCK <= len(data):
                block, known = at, at + BLOCK
                separators = bits_between(data, at, NAME_SEPARATOR, PROPERTY_SEPARATOR)
                ends = bits_between(data, at, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        # The first 0x01 ends the name, a 0x02 the piece.
        split = at + lowest_bit(separators >> (at - block)) if at < known else known
        if split >= known:
            split = find_byte(data, max(at, known), end, NAME_SEPARATOR, PROPERTY_SEPARATOR)
        if split >= end:
            return
        if byte_at(data, split) == PROPERTY_SEPARATOR:
            at = split + 1
            continue
        stop = split + lowest_bit(ends >> (split - block)) if split < known else known
        if stop >= known:
            stop = find_byte(data, max(split + 1, known), end, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        stop = min(stop, end)
        if split > at and stop > split + 1:
            number = _name_number(data, at, split)
            if number >= 0:
                spans[2 * number] = split + 1
                spans[2 * number + 1] = stop
        at = stop + 1
