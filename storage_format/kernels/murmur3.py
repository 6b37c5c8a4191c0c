"""murmur3, x64, 128 bits, of many texts: what Guava's ``Hashing.murmur3_128()`` gives, seed 0."""

from typing import Any

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
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
def _hash(data: Bytes, start: int, end: int, out: UInt64s) -> None:
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
def _hash_all(offsets: Int32s, data: Bytes, out: UInt64s) -> None:
    for k in range(len(offsets) - 1):
        _hash(data, offsets[k], offsets[k + 1], out[k])


def murmur3_128(offsets: Int32s, data: Bytes) -> UInt64s:
    """Return hashes of the texts ``data[offsets[k]:offsets[k + 1]]``: uint64 (n, 2), the first half first. ``offsets``: int32
    (n + 1,)."""
    out = np.empty((len(offsets) - 1, 2), np.uint64)
    with np.errstate(over="ignore"):
        _hash_all(offsets, data, out)
    return out
