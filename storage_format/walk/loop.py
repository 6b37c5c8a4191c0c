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
from rocketmq_reindex.storage_format.names import BATCH, DISPATCHES, INCLUDED, PLAIN, SCHEDULE, SEEN, TOPIC
from rocketmq_reindex.storage_format.record import frame as f
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.record.dispatch import gives_items, gives_unit, is_filler, is_tombstone
from rocketmq_reindex.storage_format.record.frame import RecordArrays, Stretch, check_record
from rocketmq_reindex.storage_format.text.java_text import java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.index_items import ItemArrays, index_record
from rocketmq_reindex.storage_format.walk.lmq import check_lmq, dispatch_lmq, lmq_stops_dispatch
from rocketmq_reindex.storage_format.walk.name_table import NameArrays, find_name


class WalkOptions(NamedTuple):
    """Settings of the loop. ``delays``: int64, milliseconds of each delay level from 1 (index 0) on. Units need queues, too.

    ``strict_lmq``: a record whose light queues stop the broker that dispatches it is damage.
    ``need_crc``: so is a record without ``__CRC32#``. Three others are those of
    ``versions.VersionRules``; ``tag_items`` is NO_TAGS, TAGS or MARKED_TAGS of ``walk.index_items``.
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
    """Walk the records that start in ``data[start:limit]``; returns why it stopped (a code of ``record.layout``) and where.

    The loop fills ``rows`` and ``queues``, and counts in ``state``. At every stop but LIMIT the record there has left no trace
    yet: the caller removes the cause (more data, more room, a new name) and calls again from there, or passes over the record.
    """
    data, rec, spans = stretch.data, record.rec, record.spans
    units, batches, items, messages = rows.units, rows.batches, rows.items, rows.messages
    at = start
    while at < limit:
        code = check_record(stretch, at, options.crc_mode, record)
        if code != r.GOOD:
            return code, at
        phy_offset = stretch.base + at
        size = rec[f.TOTAL]
        time = rec[f.STORE_TIME]
        if options.need_crc and spans[2 * p.CRC32] < 0:
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
        if spans[2 * p.TAGS] >= 0:
            tags_code = signed32(java_hash(data, spans[2 * p.TAGS], spans[2 * p.TAGS + 1], 0))
        if spans[2 * p.DELAY] >= 0 and flags & SCHEDULE:
            number, level = parse_number(data, spans[2 * p.DELAY], spans[2 * p.DELAY + 1], INT32_MIN, INT32_MAX)
            if not number:
                return r.BAD_NUMBER, at
            if level > 0:
                tags_code = time + options.delays[min(level, len(options.delays)) - 1]
        # DispatchRequest, CommitLog.setBatchSizeIfNeeded: a record without both is a batch of one.
        batch_base, batch_count = rec[f.QUEUE_OFFSET], np.int64(1)
        if options.batch_queues and spans[2 * p.INNER_NUM] >= 0 and spans[2 * p.INNER_BASE] >= 0:
            number, batch_count = parse_number(data, spans[2 * p.INNER_NUM], spans[2 * p.INNER_NUM + 1], INT16_MIN, INT16_MAX)
            if number:
                number, batch_base = parse_number(
                    data, spans[2 * p.INNER_BASE], spans[2 * p.INNER_BASE + 1], INT64_MIN, INT64_MAX
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
        flag = int32_at(data, at + r.AT_FLAG)
        if is_filler(rec[f.SYS_FLAG], flag) or is_tombstone(flag, tags_code):
            if state[w.LOST_END] == phy_offset or state[w.LOST_START] < 0:
                state[w.LOST_START] = phy_offset if state[w.LOST_START] < 0 else state[w.LOST_START]
                state[w.LOST_END] = phy_offset + size
            elif state[w.LOST_END] != phy_offset + size:
                # Where it is equal, this call goes on at the filler at which the last one stopped.
                return r.NEW_LOST, at
        if not flags & INCLUDED:
            state[w.EXCLUDED] += 1
            state[w.LAST_GOOD] = phy_offset
            at += size
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
                        data, record, names, queues, units, state, phy_offset, tags_code, options.lmq_counts_each
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
        state[w.LAST_GOOD] = phy_offset
        state[w.LAST_TIME] = time
        state[w.TIME_MIN] = min(state[w.TIME_MIN], time)
        state[w.TIME_MAX] = max(state[w.TIME_MAX], time)
        if has_unit:
            state[w.UNIT_RECORDS] += 1
            state[w.LAST_UNIT_TIME] = time
            state[w.LAST_UNIT] = phy_offset
        at += size
    return r.LIMIT, at
