"""Text as Java decodes and hashes it, compiled for the record loops: ``new String(bytes, UTF_8)``, ``String.hashCode``.

``java_string`` does the same for Python's strings.
"""

import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.words import BLOCK, CAN_LOAD, HASHED, bits_between, hash_bytes, lowest_bit
from rocketmq_reindex.storage_format.layouts import INT32_MAX, UINT32_MAX

REPLACEMENT: Final = 0xFFFD
_UINT32_SPAN: Final = UINT32_MAX + 1
_POWERS: Final = np.array([31**k & UINT32_MAX for k in range(HASHED + 1)], np.int64)

DIGIT_ZEROS: Final[npt.NDArray[np.int64]] = np.array(
    [c for c in range(0x10000) if unicodedata.decimal(chr(c), -1) == 0], dtype=np.int64
)
"""The zero of each block of decimal digits in the BMP: ``Integer.parseInt`` takes the digits of all of them."""


@jit
def decode_at(data: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return the first code point of ``data[at:end]`` and where the next begins, as Java's ``String.decodeUTF8`` reads it.

    A malformed sequence is U+FFFD and as long as Java takes it to be (``malformed3``, ``malformed4``).
    """
    b1 = np.int64(data[at])
    remaining = end - at
    if b1 < 0x80:
        return b1, at + 1
    if 0xC2 <= b1 <= 0xDF:
        if remaining >= 2 and (data[at + 1] & 0xC0) == 0x80:
            return ((b1 & 0x1F) << 6) | np.int64(data[at + 1] & 0x3F), at + 2
        return REPLACEMENT, at + 1
    if 0xE0 <= b1 <= 0xEF:
        if remaining < 2:
            return REPLACEMENT, at + 1
        b2 = np.int64(data[at + 1])
        if (b2 & 0xC0) != 0x80 or (b1 == 0xE0 and (b2 & 0xE0) == 0x80):
            return REPLACEMENT, at + 1
        if remaining < 3 or (data[at + 2] & 0xC0) != 0x80:
            return REPLACEMENT, at + 2
        point = ((b1 & 0x0F) << 12) | ((b2 & 0x3F) << 6) | np.int64(data[at + 2] & 0x3F)
        if 0xD800 <= point <= 0xDFFF:
            return REPLACEMENT, at + 3
        return point, at + 3
    if 0xF0 <= b1 <= 0xF4:
        if remaining < 2:
            return REPLACEMENT, at + 1
        b2 = np.int64(data[at + 1])
        if (b2 & 0xC0) != 0x80 or (b1 == 0xF0 and b2 < 0x90) or (b1 == 0xF4 and b2 > 0x8F):
            return REPLACEMENT, at + 1
        if remaining < 3 or (data[at + 2] & 0xC0) != 0x80:
            return REPLACEMENT, at + 2
        if remaining < 4 or (data[at + 3] & 0xC0) != 0x80:
            return REPLACEMENT, at + 3
        point = ((b1 & 0x07) << 18) | ((b2 & 0x3F) << 12)
        point |= (np.int64(data[at + 2] & 0x3F) << 6) | np.int64(data[at + 3] & 0x3F)
        return point, at + 4
    return REPLACEMENT, at + 1


@inlined
def java_hash(data: npt.NDArray[np.uint8], start: int, end: int, seed: int) -> int:
    """Return ``String.hashCode`` of the text ``data[start:end]``, continued from ``seed``; unsigned 32 bits as int64."""
    h = np.int64(seed)
    at = start
    if CAN_LOAD:
        while at < end and at + BLOCK <= len(data):
            count = min(end - at, HASHED)
            if lowest_bit(bits_between(data, at, 0x80, 0xFF)) < count:
                break
            h = (h * _POWERS[count] + hash_bytes(data, at, count)) & UINT32_MAX
            at += count
    while at < end:
        point, at = decode_at(data, at, end)
        if point >= 0x10000:
            point -= 0x10000
            h = (h * 31 + 0xD800 + (point >> 10)) & UINT32_MAX
            point = 0xDC00 + (point & 0x3FF)
        h = (h * 31 + point) & UINT32_MAX
    return int(h)


@inlined
def signed32(value: int) -> int:
    """Return an unsigned 32-bit value as Java's ``int``."""
    return value - _UINT32_SPAN if value > INT32_MAX else value


@inlined
def index_hash(value: int) -> int:
    """Return ``IndexFile.indexKeyHashMethod``: absolute value, with abs(-2147483648) taken as 0."""
    signed = signed32(value)
    if signed < 0:
        signed = -signed
    return 0 if signed > INT32_MAX else signed


@jit
def parse_number(data: npt.NDArray[np.uint8], start: int, end: int, low: int, high: int) -> tuple[bool, int]:
    """Return ``Long.parseLong`` of ``data[start:end]``: (whether it is a number, its value). ``low`` and ``high`` are the
    type's bounds."""
    at = start
    negative = False
    if at < end and (data[at] == 0x2D or data[at] == 0x2B):
        negative = data[at] == 0x2D
        at += 1
    if at >= end:
        return False, 0
    bound = low if negative else -high
    least_tenth = -(-(bound + 10) // 10 + 1)
    value = np.int64(0)
    while at < end:
        point, at = decode_at(data, at, end)
        digit = np.int64(-1)
        if point < 0x80:
            digit = point - 0x30
        else:
            for zero in DIGIT_ZEROS:
                if zero <= point <= zero + 9:
                    digit = point - zero
        if digit < 0 or digit > 9:
            return False, 0
        # As Integer.parseInt: towards the negative side, where there is room for -2**63.
        if value < least_tenth:
            return False, 0
        value *= 10
        if value < bound + digit:
            return False, 0
        value -= digit
    return True, value if negative else -value
