"""Texts of many records at once as columns of UTF-8: names, hosts and properties, without an object for each."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import decode_at
from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.layouts import UINT32_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import next_piece

# ----------------------------------------------------------------------------------------------------------------- text columns
# Many texts at once, from where they lie in the log to columns of UTF-8 as Java decodes them, without an object for each.

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class TextColumn(NamedTuple):
    """Texts one after another: text k is ``data[offsets[k]:offsets[k + 1]]``, valid UTF-8; there is none where ``valid[k]`` is
    false."""

    offsets: Int32s
    data: Bytes
    valid: npt.NDArray[np.bool_]


@inlined
def put_point(out: Bytes, n: int, point: int) -> int:
    """Write a code point as UTF-8 at ``out[n]``; return the index behind it."""
    if point < 0x80:
        out[n] = point
        return n + 1
    if point < 0x800:
        out[n] = 0xC0 | (point >> 6)
        out[n + 1] = 0x80 | (point & 0x3F)
        return n + 2
    if point < 0x10000:
        out[n] = 0xE0 | (point >> 12)
        out[n + 1] = 0x80 | ((point >> 6) & 0x3F)
        out[n + 2] = 0x80 | (point & 0x3F)
        return n + 3
    out[n] = 0xF0 | (point >> 18)
    out[n + 1] = 0x80 | ((point >> 12) & 0x3F)
    out[n + 2] = 0x80 | ((point >> 6) & 0x3F)
    out[n + 3] = 0x80 | (point & 0x3F)
    return n + 4


@jit
def put_text(data: Bytes, start: int, end: int, out: Bytes, n: int) -> int:
    """Write ``data[start:end]`` at ``out[n]`` as Java decodes it; return the index behind it. A byte becomes three at most."""
    at = start
    while at < end:
        if data[at] < 0x80:
            out[n] = data[at]
            at += 1
            n += 1
        else:
            point, at = decode_at(data, at, end)
            n = put_point(out, n, point)
    return n


@jit
def room_of(data: Bytes, starts: Int64s, ends: Int64s) -> int:
    """Return bytes that the texts take at most as UTF-8: a malformed byte becomes three."""
    room = 0
    for k in range(len(starts)):
        if starts[k] < 0:
            continue
        room += ends[k] - starts[k]
        for at in range(starts[k], ends[k]):
            if data[at] >= 0x80:
                room += 2
    return room


@jit
def _put_all(data: Bytes, starts: Int64s, ends: Int64s, offsets: Int32s, out: Bytes) -> None:
    n = 0
    offsets[0] = 0
    for k in range(len(starts)):
        if starts[k] >= 0:
            n = put_text(data, starts[k], ends[k], out, n)
        offsets[k + 1] = n


def read_texts(data: Bytes, starts: Int64s, ends: Int64s) -> TextColumn:
    """Return the texts ``data[starts[k]:ends[k]]`` as Java decodes them; there is none where ``starts[k]`` is -1. Indexes are
    int64 (n,)."""
    out, offsets = np.empty(room_of(data, starts, ends), np.uint8), np.empty(len(starts) + 1, np.int32)
    _put_all(data, starts, ends, offsets, out)
    return TextColumn(offsets, out, starts >= 0)


@jit
def _copy_all(data: Bytes, starts: Int64s, ends: Int64s, offsets: Int32s, out: Bytes) -> None:
    n = 0
    offsets[0] = 0
    for k in range(len(starts)):
        size = ends[k] - starts[k]
        first = starts[k]
        for at in range(size):
            out[n + at] = data[first + at]
        n += size
        offsets[k + 1] = n


def read_bytes(data: Bytes, starts: Int64s, ends: Int64s) -> TextColumn:
    """Return the bytes ``data[starts[k]:ends[k]]`` as they are. Indexes are int64 (n,)."""
    out, offsets = np.empty(int((ends - starts).sum()), np.uint8), np.empty(len(starts) + 1, np.int32)
    _copy_all(data, starts, ends, offsets, out)
    return TextColumn(offsets, out, np.ones(len(starts), np.bool_))


# ------------------------------------------------------------------------------------------------------------------------ hosts
# The hosts of many records at once, as texts.

_HOST_MAX: Final = 64
"""Bytes of the longest ``[IPv6]:port``: 2 + 39 + 1 + 11, and some more."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@inlined
def _put_number(out: Bytes, n: int, number: int) -> int:
    """Return a decimal number."""
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
    """Return a hexadecimal number without leading zeros."""
    shift = 12
    while shift > 0 and not group >> shift:
        shift -= 4
    while shift >= 0:
        out[n] = _HEX[(group >> shift) & 15]
        n, shift = n + 1, shift - 4
    return n


@jit
def _put_ipv6(data: Bytes, at: int, out: Bytes, n: int) -> int:
    """Return an IPv6 address as RFC 5952 writes it: the longest run of two or more zero groups, the first of equals, is
    ``::``."""
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
    """Return the hosts at the indexes ``at``, int64 (n,), as ``10.0.0.1:51234`` or ``[2001:db8::1]:80``; ``is_v6``: bool
    (n,)."""
    out, offsets = np.empty(_HOST_MAX * len(at), np.uint8), np.empty(len(at) + 1, np.int32)
    _put_hosts(data, at, is_v6, offsets, out)
    return TextColumn(offsets, out, np.ones(len(at), np.bool_))


# ---------------------------------------------------------------------------------------------------------------- property maps
# The properties of many records at once, as columns of names and values (``MessageDecoder.string2messageProperties``).


class MapColumn(NamedTuple):
    """Maps one after another: map k has the entries ``offsets[k]:offsets[k + 1]`` of ``names`` and ``values``, each name
    once."""

    offsets: Int32s
    names: TextColumn
    values: TextColumn


@inlined
def _text_hash(data: Bytes, start: int, end: int) -> int:
    h = np.int64(end - start)
    for at in range(start, end):
        h = (h * 31 + np.int64(data[at])) & UINT32_MAX
    return int(h ^ (h >> 13))


@jit
def _enter(names: Bytes, name_offsets: Int32s, count: int, end: int, slots: Int32s, stamps: Int64s, stamp: int) -> int:
    """Return the entry of the name that ends at ``end``, of those put under ``stamp``: one of them, or ``count`` if it is
    new."""
    start = name_offsets[count]
    mask = len(slots) - 1
    slot = _text_hash(names, start, end) & mask
    while stamps[slot] == stamp:
        entry = slots[slot]
        other_start = name_offsets[entry]
        if name_offsets[entry + 1] - other_start == end - start:
            k = 0
            while k < end - start and names[other_start + k] == names[start + k]:
                k += 1
            if k == end - start:
                return int(entry)
        slot = (slot + 1) & mask
    stamps[slot] = stamp
    slots[slot] = count
    return count


@allocating
def _maps(data: Bytes, starts: Int64s, ends: Int64s, room: int) -> tuple[Int32s, Int32s, Bytes, Int32s, Bytes]:
    entries_max = 0
    for k in range(len(starts)):
        entries_max += (ends[k] - starts[k] + 1) // 4
    longest = 0
    for k in range(len(starts)):
        longest = max(longest, (ends[k] - starts[k] + 1) // 4)
    size = 16
    while size < 2 * longest:
        size *= 2
    slots, stamps = np.zeros(size, np.int32), np.full(size, -1, np.int64)
    offsets = np.zeros(len(starts) + 1, np.int32)
    name_offsets, value_offsets = np.zeros(entries_max + 1, np.int32), np.zeros(entries_max + 1, np.int32)
    names, values = np.empty(room, np.uint8), np.empty(room, np.uint8)
    value_spans = np.empty(2 * longest + 2, np.int64)
    count, values_end = 0, 0
    for k in range(len(starts)):
        first, end = count, ends[k]
        at, split, stop = next_piece(data, starts[k], end)
        while at < end:
            name_end = put_text(data, at, split, names, name_offsets[count])
            entry = _enter(names, name_offsets, count, name_end, slots, stamps, k)
            value_spans[2 * (entry - first)], value_spans[2 * (entry - first) + 1] = split + 1, stop
            if entry == count:
                name_offsets[count + 1] = name_end
                count += 1
            at, split, stop = next_piece(data, stop + 1, end)
        for entry in range(first, count):
            span = 2 * (entry - first)
            values_end = put_text(data, value_spans[span], value_spans[span + 1], values, values_end)
            value_offsets[entry + 1] = values_end
        offsets[k + 1] = count
    return offsets, name_offsets[: count + 1], names, value_offsets[: count + 1], values


def read_maps(data: Bytes, starts: Int64s, ends: Int64s) -> MapColumn:
    """Return the properties in ``data[starts[k]:ends[k]]``; of a repeated name the last value counts. Indexes are int64
    (n,)."""
    offsets, name_offsets, names, value_offsets, values = _maps(data, starts, ends, room_of(data, starts, ends))
    valid = np.ones(len(name_offsets) - 1, np.bool_)
    return MapColumn(offsets, TextColumn(name_offsets, names, valid), TextColumn(value_offsets, values, valid))
