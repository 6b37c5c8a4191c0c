"""Records of one log that go to other places in a new one: queue offsets and unique keys hold, offsets of the log change.

Two fields of a record name offsets of the log: PHYSICALOFFSET its own, PREPAREDTRANSACTIONOFFSET that of the half message, in
the record of a committed one (``EndTransactionProcessor``, 4.9 to 5.5). ``__CRC32#`` covers both. A property may have an offset
in a message id, as text: it stays. Op messages, delayed messages, and those of POP name queue offsets alone.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit
from rocketmq_reindex.storage_format.kernels.words import int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import (
    TOTAL,
    RecordArrays,
    Stretch,
    addresses_extra,
    check_record,
    new_record,
    next_piece,
    number_of_name,
)
from rocketmq_reindex.storage_format.record.making import Bytes, Int64s, Texts, put_checksum, put_number

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
