"""Records for a new log: taken out of another one or made of their fields, then told where they lie.

What goes to another place in a new log keeps queue offsets and unique keys; offsets of the log change. Two fields of a record
name those: PHYSICALOFFSET its own, PREPAREDTRANSACTIONOFFSET that of the half message, in the record of a committed one
(``EndTransactionProcessor``, 4.9 to 5.5). ``__CRC32#`` covers both. A property may have an offset in a message id, as text: it
stays. Op messages, delayed messages, and those of POP name queue offsets alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import LOW31, crc32, int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import (
    CRC32,
    INNER_BASE,
    INNER_NUM,
    TOTAL,
    RecordArrays,
    Stretch,
    addresses_extra,
    check_record,
    new_record,
    next_piece,
    number_of_name,
)
from rocketmq_reindex.storage_format.record.layout import CRC_ALL, CRC_NONE

# ----------------------------------------------------------------------------------------------------------------------- making


Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

HOST_SIZE: Final = r.IPV6_SIZE + 4
"""bytes of a host at most: address and port"""
_CRC_DIGITS: Final = 10


class Texts(NamedTuple):
    """Bytes of n values one after another: value k is ``data[offsets[k]:offsets[k + 1]]``, uint8 and int64 (n + 1,)."""

    offsets: Int64s
    data: Bytes

    @property
    def sizes(self) -> Int64s:
        """Bytes of each value."""
        return np.diff(self.offsets)


class RecordFields(NamedTuple):
    """The fields of n records, int64 (n,) where nothing else is said.

    Hosts are uint8 (n, HOST_SIZE): 4 bytes of an address, or 16 where ``sys_flag`` says so, then 4 of the port.
    """

    queue_id: Int64s
    flag: Int64s
    sys_flag: Int64s
    born_time: Int64s
    born_host: Bytes
    store_time: Int64s
    store_host: Bytes
    reconsume_times: Int64s
    prepared_offset: Int64s
    body: Texts
    topic: Texts
    properties: Texts


# -------------------------------------------------------------------------------------------------------------------- made anew


@inlined
def put_number(data: Bytes, at: int, value: int, size: int) -> int:
    """Write an integer of ``size`` bytes. Return the index behind it."""
    for k in range(size):
        data[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF
    return at + size


@inlined
def _put_bytes(data: Bytes, at: int, source: Bytes, start: int, end: int) -> int:
    for k in range(start, end):
        data[at + k - start] = source[k]
    return at + end - start


@jit
def _put_records(data: Bytes, starts: Int64s, f: RecordFields) -> None:
    for n in range(len(starts) - 1):
        at = start = starts[n]
        body, body_end = f.body.offsets[n], f.body.offsets[n + 1]
        topic, topic_end = f.topic.offsets[n], f.topic.offsets[n + 1]
        props, props_end = f.properties.offsets[n], f.properties.offsets[n + 1]
        is_long = topic_end - topic > r.TOPIC_V1_MAX
        at = put_number(data, at, starts[n + 1] - start, 4)
        at = put_number(data, at, r.MAGIC_V2 if is_long else r.MAGIC_V1, 4)
        at = put_number(data, at, crc32(f.body.data, body, body_end) & LOW31 if body_end > body else 0, 4)
        at = put_number(data, at, f.queue_id[n], 4)
        at = put_number(data, at, f.flag[n], 4)
        # Where it lies is not known yet.
        at += 16
        at = put_number(data, at, f.sys_flag[n], 4)
        at = put_number(data, at, f.born_time[n], 8)
        host = 4 + (r.IPV6_SIZE if f.sys_flag[n] & r.FLAG_BORN_HOST_V6 else r.IPV4_SIZE)
        at = _put_bytes(data, at, f.born_host[n], 0, host)
        at = put_number(data, at, f.store_time[n], 8)
        host = 4 + (r.IPV6_SIZE if f.sys_flag[n] & r.FLAG_STORE_HOST_V6 else r.IPV4_SIZE)
        at = _put_bytes(data, at, f.store_host[n], 0, host)
        at = put_number(data, at, f.reconsume_times[n], 4)
        at = put_number(data, at, f.prepared_offset[n], 8)
        at = put_number(data, at, body_end - body, 4)
        at = _put_bytes(data, at, f.body.data, body, body_end)
        at = put_number(data, at, topic_end - topic, 2 if is_long else 1)
        at = _put_bytes(data, at, f.topic.data, topic, topic_end)
        at = put_number(data, at, props_end - props, 2)
        _put_bytes(data, at, f.properties.data, props, props_end)


def make_records(fields: RecordFields) -> Texts:
    """Return records with these fields, as ``MessageExtEncoder`` encodes them. They lie nowhere yet: ``settle`` tells them.

    A topic of more than 127 bytes makes a record of version 2. Properties have at most PROPERTIES_MAX bytes.
    """
    v6 = (fields.sys_flag & r.FLAG_BORN_HOST_V6 != 0).astype(np.int64) + (fields.sys_flag & r.FLAG_STORE_HOST_V6 != 0)
    length_sizes = np.where(fields.topic.sizes > r.TOPIC_V1_MAX, 2, 1)
    sizes = r.HEADER_SIZE + r.IPV6_EXTRA * v6 + fields.body.sizes + length_sizes + fields.topic.sizes + 2
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes + fields.properties.sizes)])
    data = np.zeros(int(starts[-1]), np.uint8)
    _put_records(data, starts, fields)
    return Texts(starts, data)


# ---------------------------------------------------------------------------------------------------------------------- settled


@inlined
def put_checksum(data: Bytes, at: int, end: int, record: RecordArrays) -> None:
    """Write the checksum of the record ``data[at:end]``, which ``record`` describes, if it has one: over its offsets, too."""
    digits = record.spans[2 * CRC32]
    if digits >= 0 and record.spans[2 * CRC32 + 1] - digits == _CRC_DIGITS:
        # Digits of the number, the lowest first (MessageDecoder.createCrc32).
        number = crc32(data, at, end - r.CRC_PROPERTY_SIZE) & LOW31
        for k in range(_CRC_DIGITS):
            data[digits + k] = 0x30 + number % 10
            number //= 10


@allocating
def _settle(data: Bytes, offsets: Int64s, phy_offsets: Int64s, queue_offsets: Int64s, record: RecordArrays) -> int:
    for n in range(len(offsets) - 1):
        at, end = offsets[n], offsets[n + 1]
        put_number(data, at + r.AT_QUEUE_OFFSET, queue_offsets[n], 8)
        put_number(data, at + r.AT_PHYSICAL_OFFSET, phy_offsets[n], 8)
        base = phy_offsets[n] - at
        stretch = Stretch(data, end, base, INT64_MAX, base + end, 0)
        code = check_record(stretch, at, CRC_NONE, record)
        if code == r.GOOD and record.spans[2 * INNER_BASE] >= 0 and record.spans[2 * INNER_NUM] >= 0:
            # BatchConsumeQueue.assignQueueOffset puts it there. Zeros before a number keep the record's length.
            left = queue_offsets[n]
            for k in range(record.spans[2 * INNER_BASE + 1] - 1, record.spans[2 * INNER_BASE] - 1, -1):
                data[k] = 0x30 + left % 10
                left //= 10
            if left:
                return n
        if code == r.GOOD:
            put_checksum(data, at, end, record)
        if code == r.GOOD:
            code = check_record(stretch, at, CRC_ALL, record)
        if code != r.GOOD or record.rec[TOTAL] != end - at:
            return n
    return -1


def settle(records: Texts, phy_offsets: Int64s, queue_offsets: Int64s) -> int:
    """Write into records where each lies in the log and in its queue, int64 (n,), and the checksum of one that has it.

    A batch says its queue offset in its properties (INNER_BASE), too.

    Returns:
        The number of the first that is no sound record then, by all of its checksums; -1 where all are.
    """
    return int(_settle(records.data, records.offsets, phy_offsets, queue_offsets, new_record()))


def places(sizes: Int64s, end: int, segment_size: int) -> Int64s:
    """Return where records of these sizes, int64 (n,), lie in a log that ends at ``end``.

    Behind a record a segment of ``segment_size`` bytes keeps room for its filler (``CommitLog.doAppend``). Raises ValueError
    for a record that fits into no segment.
    """
    if len(sizes) and int(sizes.max()) + r.FILLER_MIN > segment_size:
        raise ValueError(f"a record of {int(sizes.max())} bytes does not fit into a segment of {segment_size}")
    out = np.empty(len(sizes), np.int64)
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        room = segment_size - end % segment_size - r.FILLER_MIN
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + room, side="right"))
        if stop == first:
            end += segment_size - end % segment_size
            continue
        out[first:stop] = end - before + ends[first:stop] - sizes[first:stop]
        end = int(out[stop - 1] + sizes[stop - 1])
        first = stop
    return out


@jit
def copy(source: Bytes, starts: Int64s, sizes: Int64s, out: Bytes, to: Int64s) -> None:
    """Copy stretches of bytes, each from its start in ``source`` to its place in ``out``; all but the bytes int64 (n,)."""
    for n in range(len(starts)):
        _put_bytes(out, to[n], source, starts[n], starts[n] + sizes[n])


# ----------------------------------------------------------------------------------------------------------------------- moving


_ID_NAMES: Final = (b"ORIGIN_MESSAGE_ID", b"DLQ_ORIGIN_MESSAGE_ID")
"""properties whose value may be a message id that names an offset (``MessageDecoder.createMessageId``)"""
_LONGEST: Final = max(map(len, _ID_NAMES))
_TEXT: Final = np.array([list(name.ljust(_LONGEST, b"\0")) for name in _ID_NAMES], np.uint8)
_LENGTH: Final = np.array([len(name) for name in _ID_NAMES], np.int64)
_OFFSET_DIGITS: Final = 16
_ID_SIZES: Final = (2 * (r.IPV4_SIZE + 4) + _OFFSET_DIGITS, 2 * (r.IPV6_SIZE + 4) + _OFFSET_DIGITS)
"""characters of such an id: hex of address, port and offset"""


@inlined
def _offset_of_id(data: Bytes, start: int, end: int) -> int:
    """Return the offset that the message id in ``data[start:end]`` ends with; -1 for another text."""
    if end - start != _ID_SIZES[0] and end - start != _ID_SIZES[1]:
        return -1
    value = np.int64(0)
    for at in range(start, end):
        byte = data[at]
        if 0x30 <= byte <= 0x39:
            digit = np.int64(byte) - 0x30
        elif 0x41 <= byte <= 0x46:
            digit = np.int64(byte) - 0x41 + 10
        else:
            return -1
        if at >= end - _OFFSET_DIGITS:
            value = value << 4 | digit
    return int(value) if value >= 0 else -1


@jit
def _ids(data: Bytes, starts: Int64s, ends: Int64s, out: Int64s) -> None:
    for n in range(len(starts)):
        out[n] = -1
        piece, split, piece_end = next_piece(data, starts[n], ends[n])
        while piece < ends[n]:
            if number_of_name(data, piece, split, _TEXT, _LENGTH) >= 0:
                out[n] = _offset_of_id(data, split + 1, piece_end)
            piece, split, piece_end = next_piece(data, piece_end + 1, ends[n])


def offsets_in_ids(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the offset of the log that a message id among properties names, int64 (n,); -1 where there is none.

    The properties of record k are ``data[starts[k]:ends[k]]``, uint8. A unique key has as many digits as an id, so it may look
    like one: only an offset at which a record lies is meant.
    """
    out = np.empty(len(starts), np.int64)
    _ids(data, starts, ends, out)
    return out


@allocating
def _move(
    data: Bytes, offsets: Int64s, phy_offsets: Int64s, prepared: Int64s, wrong: npt.NDArray[np.bool_], record: RecordArrays
) -> int:  # fmt: skip
    for n in range(len(offsets) - 1):
        at, end = offsets[n], offsets[n + 1]
        base = int64_at(data, at + r.AT_PHYSICAL_OFFSET) - at
        code = check_record(Stretch(data, end, base, INT64_MAX, base + end, 0), at, r.CRC_ALL, record)
        wrong[n] = code == r.BAD_PROPERTY_CRC
        if (code != r.GOOD and not wrong[n]) or record.rec[TOTAL] != end - at:
            return n
        put_number(data, at + r.AT_PHYSICAL_OFFSET, phy_offsets[n], 8)
        if prepared[n] >= 0:
            extra = addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
            put_number(data, at + r.AT_PREPARED_OFFSET + extra, prepared[n], 8)
        if not wrong[n]:
            # What was wrong must not look right in the new log.
            put_checksum(data, at, end, record)
    return -1


def move(records: Texts, phy_offsets: Int64s, prepared: Int64s) -> tuple[int, npt.NDArray[np.bool_]]:
    """Write into records where they and their half messages lie in the new log, int64 (n,), and the checksum of those with one.

    ``prepared`` is -1 where a field stays as it is.

    Returns:
        The number of the first that is no sound record where its PHYSICALOFFSET said that it lay, -1 where all are; and which
        ones have a wrong ``__CRC32#``, bool (n,). That one stays as it is.
    """
    wrong = np.zeros(len(phy_offsets), np.bool_)
    return int(_move(records.data, records.offsets, phy_offsets, prepared, wrong, new_record())), wrong
