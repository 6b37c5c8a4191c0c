"""Many texts at once, from where they lie in the log to columns of UTF-8 as Java decodes them, without an object for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.text.java_text import decode_at

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
    """Write a code point as UTF-8 at ``out[n]``; returns the index behind it."""
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
    """Write ``data[start:end]`` at ``out[n]`` as Java decodes it; returns the index behind it. A byte becomes three at most."""
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
    """Bytes that the texts take at most as UTF-8: a malformed byte becomes three."""
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
    """The texts ``data[starts[k]:ends[k]]`` as Java decodes them; there is none where ``starts[k]`` is -1. Indexes are int64
    (n,)."""
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
    """The bytes ``data[starts[k]:ends[k]]`` as they are. Indexes are int64 (n,)."""
    out, offsets = np.empty(int((ends - starts).sum()), np.uint8), np.empty(len(starts) + 1, np.int32)
    _copy_all(data, starts, ends, offsets, out)
    return TextColumn(offsets, out, np.ones(len(starts), np.bool_))
