"""The record loop: walk good records, and fill arrays with the units and index items that they give.

It mirrors what RocketMQ (4.9 to 5.5) derives in ``CommitLog.checkMessageAndReturnSize`` and dispatches in ``ConsumeQueue`` and
``IndexService``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.words import int32_at
from rocketmq_reindex.storage_format.names import (
    BATCH,
    DISPATCHES,
    INCLUDED,
    PLAIN,
    SCHEDULE,
    SEEN,
    TOPIC,
)
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.record.dispatch import gives_items, gives_unit, is_filler, is_tombstone
from rocketmq_reindex.storage_format.record.frame import (
    PROPS_END,
    PROPS_START,
    QUEUE_ID,
    QUEUE_OFFSET,
    STORE_TIME,
    SYS_FLAG,
    TOPIC_END,
    TOPIC_START,
    TOTAL,
    VERSION,
    check_record,
)
from rocketmq_reindex.storage_format.text.java_text import java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.walk.items import ItemArrays
from rocketmq_reindex.storage_format.walk.keys import index_record
from rocketmq_reindex.storage_format.walk.lmq import check_lmq, dispatch_lmq, lmq_stops_dispatch
from rocketmq_reindex.storage_format.walk.name_table import NameArrays, find_name
from rocketmq_reindex.storage_format.walk.state import (
    BATCHES,
    BATCHES_REFUSED,
    EXCLUDED,
    FIRST_DISPATCHED,
    INNER_BATCHES,
    ITEMS,
    LAST_DISPATCHED,
    LAST_GOOD,
    LAST_TIME,
    LAST_UNIT,
    LAST_UNIT_TIME,
    LMQ_BAD,
    LOST_END,
    LOST_START,
    MAKERS,
    MESSAGES,
    NAME_END,
    NAME_START,
    QUEUES,
    RECORDS,
    TIME_MAX,
    TIME_MIN,
    UNIT_RECORDS,
    UNITS,
    WAITING,
    BatchArrays,
    MessageArrays,
    QueueArrays,
    UnitArrays,
    enter_queue,
    put_batch,
    put_message,
    put_unit,
)


class WalkOptions(NamedTuple):
    """Settings of the loop. ``delays``: int64, milliseconds of each delay level from 1 (index 0) on. Units need queues, too.

    ``strict_lmq``: a record whose light queues stop the broker that dispatches it is damage.
    ``need_crc``: so is a record without ``__CRC32#``. Three others are those of
    ``versions.VersionRules``; ``tag_items`` is NO_TAGS, TAGS or MARKED_TAGS of ``walk.keys``.
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


@jit
def walk(
    data: npt.NDArray[np.uint8],
    filled: int,
    base: int,
    start: int,
    limit: int,
    segment_end: int,
    data_end: int,
    options: WalkOptions,
    names: NameArrays,
    queues: QueueArrays,
    units: UnitArrays,
    batches: BatchArrays,
    items: ItemArrays,
    messages: MessageArrays,
    state: npt.NDArray[np.int64],
    rec: npt.NDArray[np.int64],
    spans: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Walk the records that start in ``data[start:limit]``; returns why it stopped (a code of ``record.layout``) and where.

    ``data[:filled]``, uint8, is the log from absolute offset ``base`` on; ``segment_end`` and ``data_end`` are as in
    ``RangeSpec``. The loop fills ``units``, ``batches``, ``items`` and ``messages``, and counts in ``state``; ``rec`` and
    ``spans`` are as for ``check_record``. At every stop but LIMIT the record there has left no trace yet: the caller removes
    the cause (more data, more room, a new name) and calls again from there, or passes over the record.
    """
    at = start
    while at < limit:
        found = check_record(data, filled, base, at, segment_end, data_end, options.crc_mode, rec, spans)
        if found != r.GOOD:
            return found, at
        phy_offset = base + at
        size = rec[TOTAL]
        time = rec[STORE_TIME]
        if options.need_crc and spans[2 * p.CRC32] < 0:
            return r.BAD_PROPERTY_CRC, at
        if rec[VERSION] == 2 and not options.record_v2:
            return r.BAD_VERSION, at
        name = find_name(names, data, rec[TOPIC_START], rec[TOPIC_END])
        if name < 0:
            state[NAME_START] = rec[TOPIC_START]
            state[NAME_END] = rec[TOPIC_END]
            return r.NEW_NAME, at
        flags = names.flags[name]
        if not flags & PLAIN:
            return r.BAD_TOPIC, at

        tags_code = np.int64(0)
        if spans[2 * p.TAGS] >= 0:
            tags_code = signed32(java_hash(data, spans[2 * p.TAGS], spans[2 * p.TAGS + 1], 0))
        if spans[2 * p.DELAY] >= 0 and flags & SCHEDULE:
            number, level = parse_number(data, spans[2 * p.DELAY], spans[2 * p.DELAY + 1], INT32_MIN, INT32_MAX)
            if not number:
                return r.BAD_NUMBER, at
            if level > 0:
                tags_code = time + options.delays[min(level, len(options.delays)) - 1]
        # DispatchRequest, CommitLog.setBatchSizeIfNeeded: a record without both is a batch of one.
        batch_base, batch_count = rec[QUEUE_OFFSET], np.int64(1)
        if options.batch_queues and spans[2 * p.INNER_NUM] >= 0 and spans[2 * p.INNER_BASE] >= 0:
            number, batch_count = parse_number(data, spans[2 * p.INNER_NUM], spans[2 * p.INNER_NUM + 1], INT16_MIN, INT16_MAX)
            if number:
                number, batch_base = parse_number(
                    data, spans[2 * p.INNER_BASE], spans[2 * p.INNER_BASE + 1], INT64_MIN, INT64_MAX
                )
            if not number:
                return r.BAD_NUMBER, at

        has_unit = gives_unit(rec[SYS_FLAG])
        lmq = np.int64(r.NOT_FOUND)
        if has_unit:
            if rec[QUEUE_ID] < 0 or rec[QUEUE_OFFSET] < 0 or rec[QUEUE_OFFSET] > r.QUEUE_OFFSET_MAX:
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
        flag = int32_at(data, at + r.AT_FLAG)
        if is_filler(rec[SYS_FLAG], flag) or is_tombstone(flag, tags_code):
            if state[LOST_END] == phy_offset or state[LOST_START] < 0:
                state[LOST_START] = phy_offset if state[LOST_START] < 0 else state[LOST_START]
                state[LOST_END] = phy_offset + size
            elif state[LOST_END] != phy_offset + size:
                # Where it is equal, this call goes on at the filler at which the last one stopped.
                return r.NEW_LOST, at
        if not flags & INCLUDED:
            state[EXCLUDED] += 1
            state[LAST_GOOD] = phy_offset
            at += size
            continue

        # The longest possible record names no more keys, or LMQs, than half of its property bytes.
        most = 2 + (rec[PROPS_END] - rec[PROPS_START]) // 2
        if state[UNITS] + most > len(units.phy_offset):
            return r.UNITS_FULL, at
        if flags & BATCH and state[BATCHES] == len(batches.phy_offset):
            return r.UNITS_FULL, at
        if options.want_messages and state[MESSAGES] == len(messages.phy_offset):
            return r.UNITS_FULL, at
        if state[ITEMS] + most > len(items.staged) or state[MAKERS] == len(items.makers):
            return r.ITEMS_FULL, at
        if 2 * (state[QUEUES] + most) > len(queues.slots):
            return r.QUEUES_FULL, at

        if has_unit and flags & BATCH and (batch_base < 0 or batch_count < 0):
            # BatchConsumeQueue.putMessagePositionInfoWrapper passes over it.
            has_unit = False
            state[BATCHES_REFUSED] += 1
        if has_unit and options.want_queues:
            names.flags[name] |= SEEN | TOPIC
            queue = enter_queue(queues, state, np.int64(names.canonical[name]), rec[QUEUE_ID])
            if options.want_units and flags & BATCH:
                put_batch(batches, state, queue, batch_base, phy_offset, size, tags_code, time, batch_count)
            elif options.want_units:
                put_unit(units, queues, state, queue, rec[QUEUE_OFFSET], phy_offset, size, tags_code)
                if lmq == r.GOOD:
                    dispatch_lmq(
                        data,
                        spans,
                        names,
                        queues,
                        units,
                        state,
                        rec[QUEUE_ID],
                        phy_offset,
                        size,
                        tags_code,
                        options.lmq_counts_each,
                    )
                elif lmq == r.LMQ_MALFORMED:
                    state[LMQ_BAD] += 1
        if options.want_messages:
            put_message(messages, state, phy_offset, size, tags_code, batch_base, batch_count)
        indexed = False
        if options.want_items and gives_items(rec[SYS_FLAG]):
            indexed = index_record(data, spans, items, state, names.hash[name], phy_offset, time, options.tag_items)
        if not indexed and state[WAITING] < 0:
            state[WAITING] = phy_offset
        if state[FIRST_DISPATCHED] < 0:
            state[FIRST_DISPATCHED] = phy_offset
            state[TIME_MIN] = time
            state[TIME_MAX] = time
        state[RECORDS] += 1
        if rec[SYS_FLAG] & r.FLAG_INNER_BATCH and not flags & BATCH:
            state[INNER_BATCHES] += 1
        state[LAST_DISPATCHED] = phy_offset
        state[LAST_GOOD] = phy_offset
        state[LAST_TIME] = time
        state[TIME_MIN] = min(state[TIME_MIN], time)
        state[TIME_MAX] = max(state[TIME_MAX], time)
        if has_unit:
            state[UNIT_RECORDS] += 1
            state[LAST_UNIT_TIME] = time
            state[LAST_UNIT] = phy_offset
        at += size
    return r.LIMIT, at
