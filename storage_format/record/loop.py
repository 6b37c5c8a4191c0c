"""The record loop: walk good records, and fill arrays with the units and items that they give, also in light queues."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import decode_at, java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.layouts import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.record import frame as f, layout as r, state as w
from rocketmq_reindex.storage_format.record.columns import gives_items, gives_unit, is_filler, is_tombstone
from rocketmq_reindex.storage_format.record.frame import QUEUE_ID, RecordArrays, Stretch, check_record
from rocketmq_reindex.storage_format.record.name_table import NameArrays, find_name
from rocketmq_reindex.storage_format.record.state import ItemArrays, index_record
from rocketmq_reindex.storage_format.topics import (
    BATCH,
    DISPATCHES,
    INCLUDED,
    LMQ,
    NAME_BYTES_MAX,
    PLAIN,
    SCHEDULE,
    SEEN,
    TOPIC,
)

# -------------------------------------------------------------------------------------------------------------------------- lmq
# Light message queues: a record gets one more unit in each LMQ that it names (``MultiDispatchUtils``, ``ConsumeQueue``, 5.3).

_COMMA: Final = 0x2C
_SLASH: Final = 0x2F
_NO_FILE: Final = -2


@jit
def is_blank(data: npt.NDArray[np.uint8], start: int, end: int) -> bool:
    """Return whether a text has only characters of ``Character.isWhitespace`` (``StringUtils.isBlank``)."""
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
    """Return how many pieces ``String.split(",")`` gives, and where the last of them ends (trailing empty ones are dropped)."""
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
    """Return the entry of a light queue's name; -1 when it has not been met, _NO_FILE for a name that is too long for a file.

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
    """Return what a record's light queues are, before anything is dispatched.

    GOOD: they are to be dispatched. NOT_FOUND: there are none. LMQ_MALFORMED: the broker does not dispatch them. NEW_LMQS: the
    list, whose bounds are in ``state``, has names that have not been met.
    """
    q, o = spans[2 * f.MULTI_DISPATCH], spans[2 * f.MULTI_OFFSET]
    q_end, o_end = spans[2 * f.MULTI_DISPATCH + 1], spans[2 * f.MULTI_OFFSET + 1]
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
    """Return whether ``Long.parseLong`` throws at an offset of a record that is LMQ_MALFORMED.

    Its broker then dispatches no more.
    """
    q, o = spans[2 * f.MULTI_DISPATCH], spans[2 * f.MULTI_OFFSET]
    count, q_end = _pieces(data, q, spans[2 * f.MULTI_DISPATCH + 1])
    offsets, o_end = _pieces(data, o, spans[2 * f.MULTI_OFFSET + 1])
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
    size: int,
    tags_code: int,
    counts_each: bool,
) -> None:
    """``ConsumeQueue.multiDispatchLmqQueue``: one more unit in each LMQ named, at the offset given for it.

    A name that is no plain file name never becomes a path: it alone is passed over. ``counts_each``: the broker counted a
    queue's offset up each time that a record named it (``LmqDispatch.updateLmqOffsets`` of 5.x), though it got one unit.
    """
    rec, spans = record.rec, record.spans
    q, o = spans[2 * f.MULTI_DISPATCH], spans[2 * f.MULTI_OFFSET]
    count, q_end = _pieces(data, q, spans[2 * f.MULTI_DISPATCH + 1])
    _, o_end = _pieces(data, o, spans[2 * f.MULTI_OFFSET + 1])
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
                w.put_unit(units, queues, state, queue, offset, phy_offset, size, tags_code)
            elif counts_each and names.flags[name] & LMQ:
                w.put_again(units, state, queue, offset, phy_offset)
        q = stop + 1
        o = o_stop + 1


# ------------------------------------------------------------------------------------------------------------------------- loop
# It mirrors what RocketMQ (4.9 to 5.5) derives in ``CommitLog.checkMessageAndReturnSize`` and dispatches in ``ConsumeQueue``
# and ``IndexService``.


class WalkOptions(NamedTuple):
    """Settings of the loop. ``delays``: int64, milliseconds of each delay level from 1 (index 0) on. Units need queues, too.

    ``strict_lmq``: a record whose light queues stop the broker that dispatches it is damage.
    ``need_crc``: so is a record without ``__CRC32#``. Three others are those of
    ``versions.VersionRules``; ``tag_items`` is NO_TAGS, TAGS or MARKED_TAGS of ``record.state``.
    """

    crc_mode: int
    record_v2: bool
    batch_queues: bool
    lmq_counts_each: bool
    tag_items: int
    lmq: bool
    strict_lmq: bool
    need_crc: bool
    until_time: int
    want_queues: bool
    want_units: bool
    want_items: bool
    want_messages: bool
    delays: npt.NDArray[np.int64]


class RowArrays(NamedTuple):
    """The rows that the loop fills. ``state`` counts how many of each there are."""

    units: w.UnitArrays
    batches: w.BatchArrays
    items: ItemArrays
    messages: w.MessageArrays


@jit
def walk(
    stretch: Stretch,
    start: int,
    limit: int,
    options: WalkOptions,
    names: NameArrays,
    queues: w.QueueArrays,
    rows: RowArrays,
    state: npt.NDArray[np.int64],
    record: RecordArrays,
) -> tuple[int, int]:
    """Walk the records that start in ``data[start:limit]``; return why it stopped (a code of ``record.layout``) and where.

    The loop fills ``rows`` and ``queues``, and counts in ``state``. At every stop but LIMIT the record there has left no trace
    yet: the caller removes the cause (more data, more room, a new name) and calls again from there, or passes over the record.
    """
    data, lead, rec, spans = stretch.data, stretch.lead, record.rec, record.spans
    units, batches, items, messages = rows.units, rows.batches, rows.items, rows.messages
    at = start
    while at < limit:
        code = check_record(stretch, at, options.crc_mode, record)
        if code != r.GOOD:
            return code, at
        phy_offset = stretch.base + at + lead
        size = rec[f.TOTAL] - lead
        time = rec[f.STORE_TIME]
        if lead:
            code = w.entry_order(stretch, at, record, state)
            if code != r.GOOD:
                return code, at
        if options.need_crc and spans[2 * f.CRC32] < 0:
            return r.BAD_PROPERTY_CRC, at
        if rec[f.VERSION] == 2 and not options.record_v2:
            return r.BAD_VERSION, at
        name = find_name(names, data, rec[f.TOPIC_START], rec[f.TOPIC_END])
        if name < 0:
            state[w.NAME_START] = rec[f.TOPIC_START]
            state[w.NAME_END] = rec[f.TOPIC_END]
            return r.NEW_NAME, at
        flags = names.flags[name]
        if not flags & PLAIN:
            return r.BAD_TOPIC, at

        tags_code = np.int64(0)
        if spans[2 * f.TAGS] >= 0:
            tags_code = signed32(java_hash(data, spans[2 * f.TAGS], spans[2 * f.TAGS + 1], 0))
        if spans[2 * f.DELAY] >= 0 and flags & SCHEDULE:
            number, level = parse_number(data, spans[2 * f.DELAY], spans[2 * f.DELAY + 1], INT32_MIN, INT32_MAX)
            if not number:
                return r.BAD_NUMBER, at
            if level > 0:
                tags_code = time + options.delays[min(level, len(options.delays)) - 1]
        # DispatchRequest, CommitLog.setBatchSizeIfNeeded: a record without both is a batch of one.
        batch_base, batch_count = rec[f.QUEUE_OFFSET], np.int64(1)
        if options.batch_queues and spans[2 * f.INNER_NUM] >= 0 and spans[2 * f.INNER_BASE] >= 0:
            number, batch_count = parse_number(data, spans[2 * f.INNER_NUM], spans[2 * f.INNER_NUM + 1], INT16_MIN, INT16_MAX)
            if number:
                number, batch_base = parse_number(
                    data, spans[2 * f.INNER_BASE], spans[2 * f.INNER_BASE + 1], INT64_MIN, INT64_MAX
                )
            if not number:
                return r.BAD_NUMBER, at

        has_unit = gives_unit(rec[f.SYS_FLAG])
        lmq = np.int64(r.NOT_FOUND)
        if has_unit:
            if rec[f.QUEUE_ID] < 0 or rec[f.QUEUE_OFFSET] < 0 or rec[f.QUEUE_OFFSET] > r.QUEUE_OFFSET_MAX:
                return r.BAD_QUEUE, at
            if flags & BATCH and batch_base > r.QUEUE_OFFSET_MAX:
                return r.BAD_QUEUE, at
            if options.lmq and flags & DISPATCHES:
                lmq = check_lmq(data, spans, names, state)
                if lmq == r.NEW_LMQS:
                    return lmq, at
                if lmq == r.LMQ_MALFORMED and options.strict_lmq and lmq_stops_dispatch(data, spans):
                    return r.BAD_NUMBER, at
        if time > options.until_time:
            return r.LATER, at
        # Bytes are lost where one of these stands.
        flag = int32_at(data, at + lead + r.AT_FLAG)
        if is_filler(rec[f.SYS_FLAG], flag) or is_tombstone(flag, tags_code):
            if state[w.LOST_END] == phy_offset or state[w.LOST_START] < 0:
                state[w.LOST_START] = phy_offset if state[w.LOST_START] < 0 else state[w.LOST_START]
                state[w.LOST_END] = phy_offset + size
            elif state[w.LOST_END] != phy_offset + size:
                # Where it is equal, this call goes on at the filler at which the last one stopped.
                return r.NEW_LOST, at
        if not flags & INCLUDED:
            state[w.EXCLUDED] += 1
            w.note_good(stretch, at, record, state)
            at += rec[f.TOTAL]
            continue

        # The longest possible record names no more keys, or LMQs, than half of its property bytes.
        room = 2 + (rec[f.PROPS_END] - rec[f.PROPS_START]) // 2
        if state[w.UNITS] + room > len(units.phy_offset):
            return r.UNITS_FULL, at
        if flags & BATCH and state[w.BATCHES] == len(batches.phy_offset):
            return r.UNITS_FULL, at
        if options.want_messages and state[w.MESSAGES] == len(messages.phy_offset):
            return r.UNITS_FULL, at
        if state[w.ITEMS] + room > len(items.staged) or state[w.MAKERS] == len(items.makers):
            return r.ITEMS_FULL, at
        if 2 * (state[w.QUEUES] + room) > len(queues.slots):
            return r.QUEUES_FULL, at

        if has_unit and flags & BATCH and (batch_base < 0 or batch_count < 0):
            # BatchConsumeQueue.putMessagePositionInfoWrapper passes over it.
            has_unit = False
            state[w.BATCHES_REFUSED] += 1
        if has_unit and options.want_queues:
            names.flags[name] |= SEEN | TOPIC
            queue = w.enter_queue(queues, state, np.int64(names.canonical[name]), rec[f.QUEUE_ID])
            if options.want_units and flags & BATCH:
                w.put_batch(batches, state, queue, batch_base, phy_offset, size, tags_code, time, batch_count)
            elif options.want_units:
                w.put_unit(units, queues, state, queue, rec[f.QUEUE_OFFSET], phy_offset, size, tags_code)
                if lmq == r.GOOD:
                    dispatch_lmq(
                        data, record, names, queues, units, state, phy_offset, size, tags_code, options.lmq_counts_each
                    )  # fmt: skip
                elif lmq == r.LMQ_MALFORMED:
                    state[w.LMQ_BAD] += 1
        if options.want_messages:
            w.put_message(messages, state, phy_offset, size, tags_code, batch_base, batch_count)
        indexed = False
        if options.want_items and gives_items(rec[f.SYS_FLAG]):
            indexed = index_record(data, spans, items, state, names.hash[name], phy_offset, time, options.tag_items)
        if not indexed and state[w.WAITING] < 0:
            state[w.WAITING] = phy_offset
        if state[w.FIRST_DISPATCHED] < 0:
            state[w.FIRST_DISPATCHED] = phy_offset
            state[w.TIME_MIN] = time
            state[w.TIME_MAX] = time
        state[w.RECORDS] += 1
        if rec[f.SYS_FLAG] & r.FLAG_INNER_BATCH and not flags & BATCH:
            state[w.INNER_BATCHES] += 1
        state[w.LAST_DISPATCHED] = phy_offset
        w.note_good(stretch, at, record, state)
        state[w.LAST_TIME] = time
        state[w.TIME_MIN] = min(state[w.TIME_MIN], time)
        state[w.TIME_MAX] = max(state[w.TIME_MAX], time)
        if has_unit:
            state[w.UNIT_RECORDS] += 1
            state[w.LAST_UNIT_TIME] = time
            state[w.LAST_UNIT] = phy_offset
        at += rec[f.TOTAL]
    return r.LIMIT, at
