"""The properties of many records at once, as columns of names and values (``MessageDecoder.string2messageProperties``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import UINT32_MAX
from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit
from rocketmq_reindex.storage_format.record.properties import next_piece
from rocketmq_reindex.storage_format.record.text_columns import TextColumn, put_text, room_of

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


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
    """The entry of the name that ends at ``end``, of those put under ``stamp``: one of them, or ``count`` if it is new."""
    start = name_offsets[count]
    mask = len(slots) - 1
    slot = _text_hash(names, start, end) & mask
    while stamps[slot] == stamp:
        entry = slots[slot]
        other = name_offsets[entry]
        if name_offsets[entry + 1] - other == end - start:
            k = 0
            while k < end - start and names[other + k] == names[start + k]:
                k += 1
            if k == end - start:
                return int(entry)
        slot = (slot + 1) & mask
    stamps[slot] = stamp
    slots[slot] = count
    return count


@allocating
def _maps(data: Bytes, starts: Int64s, ends: Int64s, room: int) -> tuple[Int32s, Int32s, Bytes, Int32s, Bytes]:
    most = 0
    for k in range(len(starts)):
        most += (ends[k] - starts[k] + 1) // 4
    longest = 0
    for k in range(len(starts)):
        longest = max(longest, (ends[k] - starts[k] + 1) // 4)
    size = 16
    while size < 2 * longest:
        size *= 2
    slots, stamps = np.zeros(size, np.int32), np.full(size, -1, np.int64)
    offsets = np.zeros(len(starts) + 1, np.int32)
    name_offsets, value_offsets = np.zeros(most + 1, np.int32), np.zeros(most + 1, np.int32)
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
    """The properties in ``data[starts[k]:ends[k]]``; of a repeated name the last value counts. Indexes are int64 (n,)."""
    offsets, name_offsets, names, value_offsets, values = _maps(data, starts, ends, room_of(data, starts, ends))
    valid = np.ones(len(name_offsets) - 1, np.bool_)
    return MapColumn(offsets, TextColumn(name_offsets, names, valid), TextColumn(value_offsets, values, valid))
