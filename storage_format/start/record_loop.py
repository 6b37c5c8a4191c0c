"""The loop over a segment's records as the recovery reads them: a row for each record, and for each light queue it names."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.names import BATCH, DISPATCHES
from rocketmq_reindex.storage_format.record import frame as f
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record import properties as p
from rocketmq_reindex.storage_format.record.dispatch import count_keys, gives_items, gives_unit
from rocketmq_reindex.storage_format.start.broker_record import (
    BATCH_BASE,
    BATCH_COUNT,
    PHY_OFFSET,
    Reading,
    broker_record,
    property_crc_holds,
)
from rocketmq_reindex.storage_format.text.java_text import index_hash, java_hash
from rocketmq_reindex.storage_format.walk import state as w
from rocketmq_reindex.storage_format.walk.index_items import tag_seed
from rocketmq_reindex.storage_format.walk.lmq import check_lmq, dispatch_lmq, lmq_stops_dispatch
from rocketmq_reindex.storage_format.walk.name_table import NameArrays, find_name

HAS_UNIT: Final = 1
ROLLBACK: Final = 2
LIGHT: Final = 4
"""the row is a light queue's, not a record's"""
TAGGED: Final = 8
"""one of its items is for its tags"""
DAMAGED: Final = 16
"""its ``__CRC32#`` is wrong, which a broker does not ask"""
STOPS: Final = 32
"""a broker that dispatches it dispatches no more: it names a light queue with an offset that is no number"""


class Rows(NamedTuple):
    """Rows in the log's order.

    ``at`` is where the record lies, ``phy_offset`` where it says; ``queue`` a number of QueueArrays, ``offset`` QUEUEOFFSET (of
    a batch queue INNER_BASE), ``messages`` how many a batch has, ``items`` the index items that it gives, ``tag_hash`` the key
    hash of that of its tags, 0 for none.
    """

    at: npt.NDArray[np.int64]
    phy_offset: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    items: npt.NDArray[np.uint16]
    messages: npt.NDArray[np.int16]
    flags: npt.NDArray[np.uint8]
    tag_hash: npt.NDArray[np.int32]


def new_rows(count: int) -> Rows:
    """Room for ``count`` rows."""
    kinds = (np.int64, np.int64, np.int64, np.int32, np.int32, np.uint16, np.int16, np.uint8, np.int32)
    columns: Any = (np.empty(count, kind) for kind in kinds)
    return Rows(*columns)


@inlined
def _items_of(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64], tag_items: bool) -> int:
    """How many items ``IndexService.buildIndex`` puts."""
    return count_keys(data, spans) + (1 if tag_items and spans[2 * p.TAGS] >= 0 else 0)


@inlined
def _tag_hash(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64], seed: int) -> int:
    """The key hash of ``topic#T#TAGS``; ``seed`` is the hash of ``topic#``."""
    return index_hash(java_hash(data, spans[2 * p.TAGS], spans[2 * p.TAGS + 1], tag_seed(seed)))


@jit
def read_rows(
    stretch: f.Stretch,
    start: int,
    pause: int,
    reading: Reading,
    names: NameArrays,
    queues: w.QueueArrays,
    rows: Rows,
    light: w.UnitArrays,
    state: npt.NDArray[np.int64],
    record: f.RecordArrays,
) -> tuple[int, int]:
    """Read records of a segment's bytes from ``data[start]`` on until one is refused; returns why it stopped, and where.

    At the first record from ``pause`` on it stops with MORE. ``state[w.RECORDS]`` counts rows, ``state[w.UNITS]`` those of
    ``light``. At NEW_NAME, NEW_LMQS, UNITS_FULL and QUEUES_FULL the caller removes the cause, and calls again from there.
    """
    data, base, rec, spans = stretch.data, stretch.base, record.rec, record.spans
    at = start
    while True:
        if at >= pause:
            return r.MORE, at
        code = broker_record(data, at, stretch.filled, reading, record)
        if code != r.GOOD:
            return code, at
        if reading.sound and rec[PHY_OFFSET] != base + at:
            return r.BAD_POSITION, at
        if reading.sound and (rec[f.QUEUE_ID] < 0 or rec[f.QUEUE_OFFSET] < 0 or rec[f.QUEUE_OFFSET] > r.QUEUE_OFFSET_MAX):
            return r.BAD_QUEUE, at
        name = find_name(names, data, rec[f.TOPIC_START], rec[f.TOPIC_END])
        if name < 0:
            state[w.NAME_START] = rec[f.TOPIC_START]
            state[w.NAME_END] = rec[f.TOPIC_END]
            return r.NEW_NAME, at
        has_unit, indexed = gives_unit(rec[f.SYS_FLAG]), gives_items(rec[f.SYS_FLAG])
        flags = names.flags[name]
        lmq = np.int64(r.NOT_FOUND)
        if has_unit and reading.lmq and flags & DISPATCHES:
            lmq = check_lmq(data, spans, names, state)
            if lmq == r.NEW_LMQS:
                return lmq, at
        room = 2 + (rec[f.PROPS_END] - rec[f.PROPS_START]) // 2
        if state[w.RECORDS] == len(rows.at) or state[w.UNITS] + room > len(light.phy_offset):
            return r.UNITS_FULL, at
        if 2 * (state[w.QUEUES] + room) > len(queues.slots):
            return r.QUEUES_FULL, at
        n = state[w.RECORDS]
        if flags & BATCH and (rec[BATCH_BASE] < 0 or rec[BATCH_COUNT] < 0):
            has_unit = False
        rows.at[n] = base + at
        rows.phy_offset[n] = rec[PHY_OFFSET]
        rows.size[n] = rec[f.TOTAL]
        rows.queue[n] = w.enter_queue(queues, state, np.int64(names.canonical[name]), rec[f.QUEUE_ID])
        rows.offset[n] = rec[BATCH_BASE] if flags & BATCH else rec[f.QUEUE_OFFSET]
        rows.messages[n] = rec[BATCH_COUNT] if flags & BATCH else 1
        rows.items[n] = _items_of(data, spans, reading.tag_items) if indexed else 0
        damaged = reading.crc == r.CRC_BODY and not property_crc_holds(data, at, rec[f.TOTAL], spans)
        tagged = reading.tag_items and spans[2 * p.TAGS] >= 0
        rows.flags[n] = (
            (HAS_UNIT if has_unit else 0)
            | (0 if indexed else ROLLBACK)
            | (TAGGED if tagged else 0)
            | (DAMAGED if damaged else 0)
            | (STOPS if lmq == r.LMQ_MALFORMED and lmq_stops_dispatch(data, spans) else 0)
        )
        rows.tag_hash[n] = _tag_hash(data, spans, names.hash[name]) if tagged else 0
        state[w.RECORDS] = n + 1
        if lmq == r.GOOD:
            dispatch_lmq(data, record, names, queues, light, state, rec[PHY_OFFSET], 0, False)
        at += rec[f.TOTAL]
