"""The hosts of many records at once, as texts."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.words import int32_at
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.text_columns import TextColumn

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_HOST_MAX: Final = 64
"""Bytes of the longest ``[IPv6]:port``: 2 + 39 + 1 + 11, and some more."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@inlined
def _put_number(out: Bytes, n: int, number: int) -> int:
    """A decimal number."""
    if number < 0:
        out[n] = 0x2D
        n, number = n + 1, -number
    digits = 1
    limit = np.int64(10)
    while number >= limit:
        digits, limit = digits + 1, limit * 10
    for k in range(digits):
        out[n + digits - 1 - k] = 0x30 + number % 10
        number //= 10
    return n + digits


@inlined
def _put_hex(out: Bytes, n: int, group: int) -> int:
    """A hexadecimal number without leading zeros."""
    shift = 12
    while shift > 0 and not group >> shift:
        shift -= 4
    while shift >= 0:
        out[n] = _HEX[(group >> shift) & 15]
        n, shift = n + 1, shift - 4
    return n


@jit
def _put_ipv6(data: Bytes, at: int, out: Bytes, n: int) -> int:
    """An IPv6 address as RFC 5952 writes it: the longest run of two or more zero groups, the first of equals, is ``::``."""
    best, best_length, k = -1, 1, 0
    while k < 8:
        stop = k
        while stop < 8 and data[at + 2 * stop] == 0 and data[at + 2 * stop + 1] == 0:
            stop += 1
        if stop - k > best_length:
            best, best_length = k, stop - k
        k = max(stop, k + 1)
    k = 0
    while k < 8:
        if k == best:
            out[n], out[n + 1] = 0x3A, 0x3A
            n, k = n + 2, k + best_length
            continue
        if k > 0 and k != best + best_length:
            out[n] = 0x3A
            n += 1
        n = _put_hex(out, n, (np.int64(data[at + 2 * k]) << 8) | np.int64(data[at + 2 * k + 1]))
        k += 1
    return n


@jit
def _put_hosts(data: Bytes, at: Int64s, is_v6: npt.NDArray[np.bool_], offsets: Int32s, out: Bytes) -> None:
    n = 0
    offsets[0] = 0
    for k in range(len(at)):
        port = at[k] + (r.IPV6_SIZE if is_v6[k] else r.IPV4_SIZE)
        if is_v6[k]:
            out[n] = 0x5B
            n = _put_ipv6(data, at[k], out, n + 1)
            out[n] = 0x5D
            n += 1
        else:
            for part in range(r.IPV4_SIZE):
                n = _put_number(out, n, np.int64(data[at[k] + part]))
                if part < 3:
                    out[n] = 0x2E
                    n += 1
        out[n] = 0x3A
        n = _put_number(out, n + 1, int32_at(data, port))
        offsets[k + 1] = n


def read_hosts(data: Bytes, at: Int64s, is_v6: npt.NDArray[np.bool_]) -> TextColumn:
    """The hosts at the indexes ``at``, int64 (n,), as ``10.0.0.1:51234`` or ``[2001:db8::1]:80``; ``is_v6``: bool (n,)."""
    out, offsets = np.empty(_HOST_MAX * len(at), np.uint8), np.empty(len(at) + 1, np.int32)
    _put_hosts(data, at, is_v6, offsets, out)
    return TextColumn(offsets, out, np.ones(len(at), np.bool_))
