"""Light message queues: a record gets one more unit in each LMQ that it names (``MultiDispatchUtils``, ``ConsumeQueue``,
5.3)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.names import BATCH, LMQ, NAME_BYTES_MAX, PLAIN, SEEN
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.record.frame import QUEUE_ID, TOTAL, RecordArrays
from rocketmq_reindex.storage_format.text.java_text import decode_at, parse_number
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.name_table import NameArrays, find_name

_COMMA: Final = 0x2C
_SLASH: Final = 0x2F
_NO_FILE: Final = -2


@jit
def is_blank(data: npt.NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether a text has only characters of ``Character.isWhitespace`` (``StringUtils.isBlank``)."""
    at = start
    while at < end:
        c, at = decode_at(data, at, end)
        if not (
            c == 0x20 or 0x09 <= c <= 0x0D or 0x1C <= c <= 0x1F or c == 0x1680 or c == 0x2028 or c == 0x2029
            or c == 0x205F or c == 0x3000 or (0x2000 <= c <= 0x200A and c != 0x2007)
        ):  # fmt: skip
            return False
    return True


@jit
def _pieces(data: npt.NDArray[np.uint8], start: int, end: int) -> tuple[int, int]:
    """How many pieces ``String.split(",")`` gives, and where the last of them ends (trailing empty ones are dropped)."""
    stop = end
    while stop > start and data[stop - 1] == _COMMA:
        stop -= 1
    if stop == start:
        return 0, stop
    count = 1
    for at in range(start, stop):
        if data[at] == _COMMA:
            count += 1
    return count, stop


@jit
def _piece_end(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    at = start
    while at < end and data[at] != _COMMA:
        at += 1
    return at


@jit
def _has_slash(data: npt.NDArray[np.uint8], start: int, end: int) -> bool:
    at = start
    while at < end and data[at] != _SLASH:
        at += 1
    return at < end


@jit
def _find_lmq(names: NameArrays, data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """The entry of a light queue's name; -1 when it has not been met, _NO_FILE for a name that is too long for a file.

    As Java reads it no name is shorter: at most three malformed bytes become U+FFFD, which has three bytes.
    """
    if end - start > NAME_BYTES_MAX:
        return _NO_FILE
    return find_name(names, data, start, end)


@jit
def check_lmq(
    data: npt.NDArray[np.uint8],
    spans: npt.NDArray[np.int64],
    names: NameArrays,
    state: npt.NDArray[np.int64],
) -> int:
    """Look at a record's light queues before anything is dispatched.

    GOOD: they are to be dispatched. NOT_FOUND: there are none. LMQ_MALFORMED: the broker does not dispatch them. NEW_LMQS: the
    list, whose bounds are in ``state``, has names that have not been met.
    """
    q, o = spans[2 * p.MULTI_DISPATCH], spans[2 * p.MULTI_OFFSET]
    q_end, o_end = spans[2 * p.MULTI_DISPATCH + 1], spans[2 * p.MULTI_OFFSET + 1]
    if q < 0 or o < 0 or is_blank(data, q, q_end) or is_blank(data, o, o_end):
        return r.NOT_FOUND
    count, q_end = _pieces(data, q, q_end)
    offsets, o_end = _pieces(data, o, o_end)
    if count != offsets:
        return r.LMQ_MALFORMED
    good = True
    for _ in range(count):
        stop = _piece_end(data, q, q_end)
        name = _find_lmq(names, data, q, stop)
        if name == -1:
            state[w.NAME_START] = q
            state[w.NAME_END] = q_end
            return r.NEW_LMQS
        if good:
            o_stop = _piece_end(data, o, o_end)
            if name >= 0 and names.flags[name] & (PLAIN | BATCH) == PLAIN:
                number, value = parse_number(data, o, o_stop, INT64_MIN, INT64_MAX)
                if not number or value < 0 or value > r.QUEUE_OFFSET_MAX:
                    good = False
            o = o_stop + 1
        q = stop + 1
    return r.GOOD if good else r.LMQ_MALFORMED


@jit
def lmq_stops_dispatch(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> bool:
    """Whether ``Long.parseLong`` throws at an offset of a record that is LMQ_MALFORMED: its broker then dispatches no more."""
    q, o = spans[2 * p.MULTI_DISPATCH], spans[2 * p.MULTI_OFFSET]
    count, q_end = _pieces(data, q, spans[2 * p.MULTI_DISPATCH + 1])
    offsets, o_end = _pieces(data, o, spans[2 * p.MULTI_OFFSET + 1])
    if count != offsets:
        return False
    for _ in range(count):
        stop, o_stop = _piece_end(data, q, q_end), _piece_end(data, o, o_end)
        number, _value = parse_number(data, o, o_stop, INT64_MIN, INT64_MAX)
        if not number and not _has_slash(data, q, stop):
            return True
        q, o = stop + 1, o_stop + 1
    return False


@jit
def new_lmqs(data: npt.NDArray[np.uint8], start: int, end: int, names: NameArrays, bounds: npt.NDArray[np.int64]) -> int:
    """Put start and end of each name in ``data[start:end]`` that has not been met into ``bounds``, int64; return how many."""
    count, at = 0, start
    while at <= end:
        stop = _piece_end(data, at, end)
        if _find_lmq(names, data, at, stop) == -1:
            bounds[2 * count] = at
            bounds[2 * count + 1] = stop
            count += 1
        at = stop + 1
    return count


@jit
def dispatch_lmq(
    data: npt.NDArray[np.uint8],
    record: RecordArrays,
    names: NameArrays,
    queues: w.QueueArrays,
    units: w.UnitArrays,
    state: npt.NDArray[np.int64],
    phy_offset: int,
    tags_code: int,
    counts_each: bool,
) -> None:
    """``ConsumeQueue.multiDispatchLmqQueue``: one more unit in each LMQ named, at the offset given for it.

    A name that is no plain file name never becomes a path: it alone is passed over. ``counts_each``: the broker counted a
    queue's offset up each time that a record named it (``LmqDispatch.updateLmqOffsets`` of 5.x), though it got one unit.
    """
    rec, spans = record.rec, record.spans
    q, o = spans[2 * p.MULTI_DISPATCH], spans[2 * p.MULTI_OFFSET]
    count, q_end = _pieces(data, q, spans[2 * p.MULTI_DISPATCH + 1])
    _, o_end = _pieces(data, o, spans[2 * p.MULTI_OFFSET + 1])
    for _ in range(count):
        stop = _piece_end(data, q, q_end)
        o_stop = _piece_end(data, o, o_end)
        name = _find_lmq(names, data, q, stop)
        if name < 0 or names.flags[name] & (PLAIN | BATCH) != PLAIN:
            # With plain units in a batch topic a broker does not start.
            if _has_slash(data, q, stop) or (name >= 0 and names.flags[name] & BATCH):
                state[w.LMQ_SLASH] += 1
            else:
                state[w.LMQ_NO_FILE] += 1
        else:
            _, offset = parse_number(data, o, o_stop, INT64_MIN, INT64_MAX)
            names.flags[name] |= SEEN
            lmq_id = 0 if names.flags[name] & LMQ else rec[QUEUE_ID]
            queue = w.enter_queue(queues, state, np.int64(names.canonical[name]), lmq_id)
            if queues.last[queue] != phy_offset:
                w.put_unit(units, queues, state, queue, offset, phy_offset, rec[TOTAL], tags_code)
            elif counts_each and names.flags[name] & LMQ:
                w.put_again(units, state, queue, offset, phy_offset)
        q = stop + 1
        o = o_stop + 1
