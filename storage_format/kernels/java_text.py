"""Text as Java decodes and hashes it, compiled for the record loops: ``new String(bytes, UTF_8)``, ``String.hashCode``.

Hashes, ids and bloom filter bits of texts are made of these. ``storage_format.layouts`` does the same for Python's strings.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import BLOCK, CAN_LOAD, HASHED, bits_between, hash_bytes, lowest_bit
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT32_MIN, UINT32_MAX

# -------------------------------------------------------------------------------------------------------------------- java text


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


# ---------------------------------------------------------------------------------------------------------------------- murmur3
# murmur3, x64, 128 bits, of many texts: what Guava's ``Hashing.murmur3_128()`` gives, seed 0.


Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Word = Any
"""np.uint64, whose arithmetic wraps, which numpy's types do not express"""

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_F1 = np.uint64(0xFF51AFD7ED558CCD)
_F2 = np.uint64(0xC4CEB9FE1A85EC53)
_5 = np.uint64(5)
_M1 = np.uint64(0x52DCE729)
_M2 = np.uint64(0x38495AB5)
_0 = np.uint64(0)
_64 = np.uint64(64)
_33 = np.uint64(33)


@inlined
def _rotated(x: Word, by: Word) -> Word:
    return (x << by) | (x >> (_64 - by))


@inlined
def _mixed(x: Word) -> Word:
    x = (x ^ (x >> _33)) * _F1
    x = (x ^ (x >> _33)) * _F2
    return x ^ (x >> _33)


@inlined
def _word(data: Bytes, start: int, count: int) -> Word:
    """Return up to eight bytes, the lowest first."""
    value = _0
    for k in range(count):
        value |= np.uint64(data[start + k]) << np.uint64(8 * k)
    return value


@jit
def _murmur3(data: Bytes, start: int, end: int, out: UInt64s) -> None:
    h1, h2 = _0, _0
    length = end - start
    at = start
    while at + 16 <= end:
        k1, k2 = _word(data, at, 8), _word(data, at + 8, 8)
        h1 ^= _rotated(k1 * _C1, np.uint64(31)) * _C2
        h1 = (_rotated(h1, np.uint64(27)) + h2) * _5 + _M1
        h2 ^= _rotated(k2 * _C2, np.uint64(33)) * _C1
        h2 = (_rotated(h2, np.uint64(31)) + h1) * _5 + _M2
        at += 16
    remaining = end - at
    if remaining > 8:
        h2 ^= _rotated(_word(data, at + 8, remaining - 8) * _C2, np.uint64(33)) * _C1
    if remaining > 0:
        h1 ^= _rotated(_word(data, at, min(remaining, 8)) * _C1, np.uint64(31)) * _C2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 += h2
    out[0], out[1] = h1, h1 + h2


@jit
def _murmur3_all(offsets: Int32s, data: Bytes, out: UInt64s) -> None:
    for k in range(len(offsets) - 1):
        _murmur3(data, offsets[k], offsets[k + 1], out[k])


def murmur3_128(offsets: Int32s, data: Bytes) -> UInt64s:
    """Return hashes of the texts ``data[offsets[k]:offsets[k + 1]]``: uint64 (n, 2), the first half first. ``offsets``: int32
    (n + 1,)."""
    out = np.empty((len(offsets) - 1, 2), np.uint64)
    with np.errstate(over="ignore"):
        _murmur3_all(offsets, data, out)
    return out


# ----------------------------------------------------------------------------------------------------------------------- hashes
# Hashes and ids of many texts at once.

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()


@jit
def _java_hash_all(offsets: Int32s, data: Bytes, out: Int32s) -> None:
    for k in range(len(out)):
        out[k] = signed32(java_hash(data, offsets[k], offsets[k + 1], 0))


def hash_texts(offsets: Int32s, data: Bytes) -> Int32s:
    """Return ``String.hashCode`` of the texts ``data[offsets[k]:offsets[k + 1]]``: int32 (n,)."""
    out = np.empty(len(offsets) - 1, np.int32)
    _java_hash_all(offsets, data, out)
    return out


def hash_keys(offsets: Int32s, data: Bytes) -> Int32s:
    """Return the hash under which an IndexFile keeps each of the texts (``topic#key``): int32 (n,), never below 0."""
    hashed = hash_texts(offsets, data)
    # abs(-2147483648) is taken as 0.
    return np.where(hashed == INT32_MIN, 0, np.abs(hashed)).astype(np.int32)


@jit
def _put_ids(
    hosts: Bytes, lengths: Int64s, host_number: Int64s, offset: Int64s, valid: npt.NDArray[np.bool_], ends: Int32s, out: Bytes
) -> None:
    n = 0
    ends[0] = 0
    for k in range(len(host_number)):
        if valid[k]:
            for at in range(lengths[host_number[k]]):
                byte = np.int64(hosts[host_number[k], at])
                out[n], out[n + 1] = _HEX[byte >> 4], _HEX[byte & 15]
                n += 2
            for shift in range(60, -4, -4):
                out[n] = _HEX[(offset[k] >> shift) & 15]
                n += 1
        ends[k + 1] = n


def hex_ids(
    hosts: Bytes, lengths: Int64s, host_number: Int64s, offset: Int64s, valid: npt.NDArray[np.bool_]
) -> tuple[Int32s, Bytes]:
    """Return message ids (``MessageDecoder.createMessageId``) as texts (offsets, bytes): host and physical offset in upper-case
    hex.

    ``hosts``: uint8 (h, 20), of which the first ``lengths`` bytes count. ``host_number``: the host of each message, ``offset``
    its physical offset, int64 (n,). There is no text where ``valid``, bool (n,), is false.
    """
    ends, out = np.empty(len(host_number) + 1, np.int32), np.empty(56 * len(host_number), np.uint8)
    _put_ids(hosts, lengths, host_number, offset, valid, ends, out)
    return ends, out


# ------------------------------------------------------------------------------------------------------------------------ bloom
# The broker's bloom filter over consumers (RocketMQ ``BloomFilter`` of the filter module, 4.9 and 5.3): the bits of a text.

ERROR_RATE, CONSUMERS = 20, 32
"""``BrokerConfig.maxErrorRateOfBloomFilter`` (percent), ``expectConsumerNumUseFilter``"""


@dataclass(frozen=True)
class BloomShape:
    """A filter of ``bits`` bits (m), of which each text sets ``hashes`` (k)."""

    hashes: int
    bits: int


def bloom_shape(error_rate: int = ERROR_RATE, consumers: int = CONSUMERS) -> BloomShape:
    """Return the shape that ``BloomFilter.createByFn`` gives for an error rate in percent and a number of consumers.

    Raises ValueError where the rate is not 1 to 99, or there is no consumer.
    """
    if not 1 <= error_rate < 100 or consumers < 1:
        raise ValueError(f"a bloom filter has an error rate of 1 to 99 and consumers, not {error_rate} and {consumers}")
    # The same quotients of logarithms as in Java: another order of operations could round to another number of bits.
    rate = error_rate / 100.0
    hashes = math.ceil(math.log(rate) / math.log(0.5))
    bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
    return BloomShape(hashes, 8 * math.ceil(bits / 8.0))


def bloom_bits(hashed: npt.NDArray[np.uint64], shape: BloomShape) -> npt.NDArray[np.int32]:
    """Return the positions of the bits of texts: int32 (n, hashes). ``hashed``: uint64 (n,), the first half of
    ``murmur3_128``."""
    low = hashed.astype(np.uint32).view(np.int32)
    high = (hashed >> np.uint64(32)).astype(np.uint32).view(np.int32)
    with np.errstate(over="ignore"):
        combined = low[:, None] + np.arange(1, shape.hashes + 1, dtype=np.int32) * high[:, None]
    return np.asarray(np.where(combined < 0, ~combined, combined) % np.int32(shape.bits), np.int32)
