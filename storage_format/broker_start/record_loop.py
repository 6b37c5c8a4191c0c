"""The records of a segment as the recovery reads them: whether a broker accepts each, and a row for it."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import index_hash, java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import LOW31, crc32, int16_at, int32_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX
from rocketmq_reindex.storage_format.record import frame as f, layout as r, state as w
from rocketmq_reindex.storage_format.record.columns import count_keys, gives_items, gives_unit
from rocketmq_reindex.storage_format.record.loop import check_lmq, dispatch_lmq, lmq_stops_dispatch
from rocketmq_reindex.storage_format.record.name_table import NameArrays, find_name
from rocketmq_reindex.storage_format.record.state import tag_seed
from rocketmq_reindex.storage_format.topics import BATCH, DISPATCHES

# ---------------------------------------------------------------------------------------------------------------- broker record
# Whether a broker accepts what stands at a byte of a segment: ``CommitLog.checkMessageAndReturnSize`` of 4.9.8 to 5.5.1.
#
# ``record.frame.check_record`` asks for more: there a record must lie where its PHYSICALOFFSET says. The broker does not look.

PHY_OFFSET: Final = f.REC_SIZE
BATCH_BASE: Final = f.REC_SIZE + 1
BATCH_COUNT: Final = f.REC_SIZE + 2
READ: Final = f.REC_SIZE + 3
"""how many bytes Java had read when it refused the sum of the parts (BAD_SUM)"""
FIELDS: Final = f.REC_SIZE + 4
"""the fields of ``record.frame``, and those above"""

CRC_PROPERTY: Final = 3
BAD_SUM: Final = 38
"""The lengths add up to another size than TOTALSIZE: the one refusal that tells a size."""
TOO_LARGE: Final = 39
"""No JVM has an array of TOTALSIZE bytes, and the OutOfMemoryError is no Exception: nobody catches it."""
ARRAY_MAX: Final = INT32_MAX - 2
"""bytes of the largest array of HotSpot, whatever the heap"""
_SCHEDULE: Final = np.frombuffer(b"SCHEDULE_TOPIC_XXXX", np.uint8).astype(np.int64)


class Reading(NamedTuple):
    """How records are read.

    ``crc``: CRC_NONE; CRC_BODY as brokers do; CRC_PROPERTY for that of the whole record alone, which must be there
    (``forceVerifyPropCRC``); CRC_ALL for both, if it is there, as ``verify`` and builds do.
    """

    crc: int
    old: bool
    """4.9: V1 records only, a size is not held against the file, no batches"""
    negative_sizes: bool
    sound: bool
    """a record must have a queue that can be, and an offset in it: for counting, the broker does not ask"""
    lowest: int
    highest: int
    """PHYSICALOFFSET may be no other (``checkCommitLogOffsetOnRecover``); INT64_MIN and INT64_MAX for any"""
    tag_items: bool
    lmq: bool


@inlined
def _is_schedule(data: npt.NDArray[np.uint8], start: int, end: int) -> bool:
    if end - start != len(_SCHEDULE):
        return False
    k = 0
    while k < len(_SCHEDULE) and data[start + k] == _SCHEDULE[k]:
        k += 1
    return k == len(_SCHEDULE)


@jit
def property_crc_holds(data: npt.NDArray[np.uint8], at: int, total: int, spans: npt.NDArray[np.int64]) -> bool:
    """Return whether a record's ``__CRC32#``, ten digits with the lowest first, is right; true for a record without one."""
    if spans[2 * f.CRC32] < 0:
        return True
    value = np.int64(0)
    for k in range(spans[2 * f.CRC32 + 1] - 1, spans[2 * f.CRC32] - 1, -1):
        value = (value * 10 + np.int64(data[k]) - 0x30) & UINT32_MAX
    return bool((crc32(data, at, at + total - r.CRC_PROPERTY_SIZE) & LOW31) == signed32(value))


@inlined
def broker_record(data: npt.NDArray[np.uint8], at: int, end: int, reading: Reading, record: f.RecordArrays) -> int:
    """Return what stands at ``data[at]``, of which the broker reads no byte from ``end`` on: GOOD, FILLER, or why it refuses
    it.

    GOOD fills ``record``, which has FIELDS fields. Codes are those of ``record.layout``, and BAD_SUM.
    """
    rec, spans = record.rec, record.spans
    room = end - at
    if room < r.FILLER_MIN:
        return r.NO_ROOM
    total = int32_at(data, at)
    magic = int32_at(data, at + r.AT_MAGIC)
    if not reading.old and (total > room or (total < 0 and not reading.negative_sizes)):
        return r.BAD_SIZE
    if magic == r.MAGIC_BLANK:
        return r.FILLER
    if magic != r.MAGIC_V1 and (reading.old or magic != r.MAGIC_V2):
        return r.ZERO if total == 0 and magic == 0 else r.BAD_MAGIC
    # Java makes an array of TOTALSIZE bytes before it looks further, and reads the hosts into it.
    if total > ARRAY_MAX:
        return TOO_LARGE
    if total < 8 or room < r.HEADER_SIZE:
        return r.BAD_SIZE
    sys_flag = int32_at(data, at + r.AT_SYS_FLAG)
    extra = f.addresses_extra(sys_flag)
    length_size = 1 if magic == r.MAGIC_V1 else 2
    fixed = r.HEADER_SIZE + extra
    if room < fixed + length_size + 2 or (extra > 0 and total < 20):
        return r.BAD_SIZE
    body_length = int32_at(data, at + r.AT_BODY_LENGTH + extra)
    body_size = max(0, body_length)
    if body_size > room - fixed - length_size - 2 or body_size > total:
        return r.BAD_LENGTHS
    topic = at + fixed + body_size + length_size
    if length_size == 1:
        topic_length = np.int64(data[topic - 1])
        topic_length -= 0x100 if topic_length >= 0x80 else 0
    else:
        topic_length = np.int64(int16_at(data, topic - 2))
    if topic_length < 0 or topic_length > total or topic + topic_length + 2 > end:
        return r.BAD_LENGTHS
    props = topic + topic_length + 2
    props_size = max(0, int16_at(data, props - 2))
    if props_size > total or props + props_size > end:
        return r.BAD_LENGTHS
    if (reading.crc == r.CRC_BODY or reading.crc == r.CRC_ALL) and body_size > 0:
        crc = crc32(data, at + fixed, at + fixed + body_size) & LOW31
        if crc != int32_at(data, at + r.AT_BODY_CRC):
            return r.BAD_BODY_CRC
    f.scan_properties(data, props, props + props_size, spans)
    if spans[2 * f.DELAY] >= 0 and _is_schedule(data, topic, topic + topic_length):
        number, _ = parse_number(data, spans[2 * f.DELAY], spans[2 * f.DELAY + 1], INT32_MIN, INT32_MAX)
        if not number:
            return r.BAD_NUMBER
    rec[READ] = props + props_size - at
    if props + props_size - at != total:
        return BAD_SUM
    if reading.crc == CRC_PROPERTY and spans[2 * f.CRC32] < 0:
        return r.BAD_PROPERTY_CRC
    if (reading.crc == CRC_PROPERTY or reading.crc == r.CRC_ALL) and not property_crc_holds(data, at, total, spans):
        return r.BAD_PROPERTY_CRC
    rec[f.TOTAL] = total
    rec[f.QUEUE_ID] = int32_at(data, at + r.AT_QUEUE_ID)
    rec[f.QUEUE_OFFSET] = int64_at(data, at + r.AT_QUEUE_OFFSET)
    rec[f.SYS_FLAG] = sys_flag
    rec[f.STORE_TIME] = int64_at(data, at + r.AT_STORE_TIMESTAMP + (r.IPV6_EXTRA if sys_flag & r.FLAG_BORN_HOST_V6 else 0))
    rec[f.TOPIC_START], rec[f.TOPIC_END] = topic, topic + topic_length
    rec[f.PROPS_START], rec[f.PROPS_END] = props, props + props_size
    rec[f.VERSION] = length_size
    rec[PHY_OFFSET] = int64_at(data, at + r.AT_PHYSICAL_OFFSET)
    rec[BATCH_BASE], rec[BATCH_COUNT] = rec[f.QUEUE_OFFSET], 1
    if not reading.old and spans[2 * f.INNER_NUM] >= 0 and spans[2 * f.INNER_BASE] >= 0:
        number, base = parse_number(data, spans[2 * f.INNER_BASE], spans[2 * f.INNER_BASE + 1], INT64_MIN, INT64_MAX)
        if not number:
            return r.BAD_NUMBER
        number, count = parse_number(data, spans[2 * f.INNER_NUM], spans[2 * f.INNER_NUM + 1], INT16_MIN, INT16_MAX)
        if not number:
            return r.BAD_NUMBER
        rec[BATCH_BASE], rec[BATCH_COUNT] = base, count
    if rec[PHY_OFFSET] < reading.lowest or rec[PHY_OFFSET] > reading.highest:
        return r.BAD_POSITION
    return r.GOOD


# ------------------------------------------------------------------------------------------------------------------ record loop
# The loop over a segment's records as the recovery reads them: a row for each record, and for each light queue it names.

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
ELSEWHERE: Final = 64
"""of ``kept.QueueRows``: the record lies where it does not say"""


class LogRows(NamedTuple):
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


def new_rows(count: int) -> LogRows:
    """Return room for ``count`` rows."""
    kinds = (np.int64, np.int64, np.int64, np.int32, np.int32, np.uint16, np.int16, np.uint8, np.int32)
    columns: Any = (np.empty(count, kind) for kind in kinds)
    return LogRows(*columns)


@inlined
def _items_of(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64], tag_items: bool) -> int:
    """Return how many items ``IndexService.buildIndex`` puts."""
    return count_keys(data, spans) + (1 if tag_items and spans[2 * f.TAGS] >= 0 else 0)


@inlined
def _tag_hash(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64], seed: int) -> int:
    """Return the key hash of ``topic#T#TAGS``; ``seed`` is the hash of ``topic#``."""
    return index_hash(java_hash(data, spans[2 * f.TAGS], spans[2 * f.TAGS + 1], tag_seed(seed)))


@jit
def read_rows(
    stretch: f.Stretch,
    start: int,
    pause: int,
    reading: Reading,
    names: NameArrays,
    queues: w.QueueArrays,
    rows: LogRows,
    light: w.UnitArrays,
    state: npt.NDArray[np.int64],
    record: f.RecordArrays,
) -> tuple[int, int]:
    """Read records of a segment's bytes from ``data[start]`` on until one is refused; return why it stopped, and where.

    At the first record from ``pause`` on it stops with MORE. ``state[w.RECORDS]`` counts rows, ``state[w.UNITS]`` those of
    ``light``. At NEW_NAME, NEW_LMQS, UNITS_FULL and QUEUES_FULL the caller removes the cause, and calls again from there.
    """
    data, base, rec, spans, lead = stretch.data, stretch.base, record.rec, record.spans, stretch.lead
    at = start
    while True:
        if at >= pause:
            return r.MORE, at
        if lead and at + 4 <= stretch.filled and int32_at(data, at) == r.ENTRY_BLANK:
            return r.FILLER, at
        # Of an entry only its record is looked at (DLedgerCommitLog.checkMessageAndReturnSize).
        code = broker_record(data, at + lead, stretch.filled, reading, record)
        if code != r.GOOD:
            return code, at
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
        rows.at[n] = base + at + lead
        rows.phy_offset[n] = rec[PHY_OFFSET]
        rows.size[n] = rec[f.TOTAL]
        rows.queue[n] = w.enter_queue(queues, state, np.int64(names.canonical[name]), rec[f.QUEUE_ID])
        rows.offset[n] = rec[BATCH_BASE] if flags & BATCH else rec[f.QUEUE_OFFSET]
        rows.messages[n] = rec[BATCH_COUNT] if flags & BATCH else 1
        rows.items[n] = _items_of(data, spans, reading.tag_items) if indexed else 0
        damaged = reading.crc == r.CRC_BODY and not property_crc_holds(data, at, rec[f.TOTAL], spans)
        tagged = reading.tag_items and spans[2 * f.TAGS] >= 0
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
            # No start looks at a tagsCode of a light queue: in its place stands where the record lies.
            dispatch_lmq(data, record, names, queues, light, state, rec[PHY_OFFSET], rec[f.TOTAL], base + at + lead, False)
        at += lead + rec[f.TOTAL]
