"""The records that show which delayed messages were delivered: those that wait in a system topic, and the copies of them.

A copy has what its scheduled record has (``ScheduleMessageService.messageTimeup``, ``TimerMessageStore.convertMessage``): body,
born time, reconsume times, UNIQ_KEY and, of a delay level, DELAY and REAL_TOPIC, of a timer TIMER_OUT_MS. A digest of these
brings both together. A half message that a check wrote anew has the UNIQ_KEY, the body and the born time of the older one
(``TransactionalMessageBridge.renewHalfMessageInner``), and so has one that was given up
(``DefaultTransactionalMessageCheckListener.resolveDiscardMsg``); one that its client sent once more was born later. An op
message names the queue offsets of half messages that were committed or rolled back.

At the end: whether what a unit of ``timerlog`` leads to is still the message that it meant.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.timer_layout import MAGIC_DELETE, MAGIC_ROLL
from rocketmq_reindex.storage_format.kernels.java_text import java_hash, parse_number, signed32
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int32_at
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT32_MIN, INT64_MAX
from rocketmq_reindex.storage_format.record import columns as c, layout as r
from rocketmq_reindex.storage_format.record.frame import (
    PROPS_END,
    PROPS_START,
    QUEUE_ID,
    SYS_FLAG,
    TOPIC_END,
    TOPIC_START,
    TOTAL,
    RecordArrays,
    Stretch,
    addresses_extra,
    check_record,
    new_record,
    next_piece,
    number_of_name,
)
from rocketmq_reindex.storage_format.record.state import MessageArrays
from rocketmq_reindex.storage_format.topics import DISCARD_TOPIC, HALF_TOPIC, OP_TAG, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

NO_KIND, SCHEDULED, COPY, TIMED, FIRED, HALF, DISCARD, DECIDED = range(8)
"""What a record is: of SCHEDULE_TOPIC_XXXX, the copy of such a one, of the timer topic, its copy, a half message, the copy of
one that was given up. A DECIDED row is one queue offset that an op message names."""

EVIDENCE: Final = np.dtype(
    [
        ("digest", "<i8"),
        ("digest2", "<i8"),
        ("phy_offset", "<i8"),
        ("kind", "<i8"),
        ("queue", "<i8"),
        ("queue_offset", "<i8"),
        ("size", "<i8"),
        ("store_time", "<i8"),
        ("due", "<i8"),
        ("topic_hash", "<i8"),
        ("rolls", "<i8"),
        ("delete", "<i8"),
        ("keyed", "<i8"),
        ("key", "<i8"),
    ]
)
"""One record. ``due`` and ``store_time`` are in milliseconds since 1970; ``topic_hash`` is Java's hashCode of REAL_TOPIC;
``rolls`` is TIMER_ROLL_TIMES, or TRANSACTION_CHECK_TIMES of half messages; ``delete`` and ``keyed`` are 1 where it has
TIMER_DEL_UNIQKEY and UNIQ_KEY. ``key`` is a digest of UNIQ_KEY, or of the UNIQ_KEY that a delete mark names; 0 where there is
none."""
_NAMES: Final = (
    b"UNIQ_KEY", b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"TIMER_OUT_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES",
    b"TIMER_DEL_UNIQKEY", b"TRANSACTION_CHECK_TIMES", b"TAGS",
)  # fmt: skip
(
    _UNIQ_KEY, _REAL_TOPIC, _REAL_QID, _DELAY, _OUT_MS, _DEQUEUE_MS, _ROLL_TIMES, _DEL_KEY, _CHECK_TIMES, _TAGS,
) = range(len(_NAMES))  # fmt: skip
_COLUMNS: Final = (
    ("kind", 0), ("digest", 1), ("digest2", 2), ("topic_hash", 4), ("rolls", 5), ("delete", 6), ("keyed", 7), ("key", 8),
)  # fmt: skip
_TOPICS: Final = tuple(topic.encode() for topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, DISCARD_TOPIC, OP_TOPIC))
_COMMA: Final = ord(",")
_REMOVE: Final = ord(OP_TAG)


def _table(names: tuple[bytes, ...]) -> Bytes:
    longest = max(len(name) for name in names)
    return np.array([list(name.ljust(longest, b"\0")) for name in names], np.uint8)


_TEXT, _LENGTH = _table(_NAMES), np.array([len(name) for name in _NAMES], np.int64)
_TOPIC_TEXT, _TOPIC_LENGTH = _table(_TOPICS), np.array([len(name) for name in _TOPICS], np.int64)
_PLUS: Final = ord("+")
_PRIMES: Final = np.array([2147483647, 2147483629, 2147483587, 2147483579], np.int64)
_FACTORS: Final = np.array([1103515245, 1664525, 69069, 22695477], np.int64)


@jit
def _find(data: Bytes, start: int, end: int, spans: Int64s) -> None:
    """Find the properties of ``_NAMES`` as ``properties.scan_properties`` does."""
    for k in range(len(spans)):
        spans[k] = -1
    at, split, stop = next_piece(data, start, end)
    while at < end:
        number = number_of_name(data, at, split, _TEXT, _LENGTH)
        if number >= 0:
            spans[2 * number], spans[2 * number + 1] = split + 1, stop
        at, split, stop = next_piece(data, stop + 1, end)


@jit
def _number(data: Bytes, spans: Int64s, name: int) -> int:
    """Return the number, not below 0, that a property is; 0 where there is none."""
    start, end = spans[2 * name], spans[2 * name + 1]
    if start < 0:
        return 0
    number, value = parse_number(data, start, end, 0, INT64_MAX)
    return value if number else 0


@jit
def _add_byte(lanes: Int64s, byte: int) -> None:
    for k in range(4):
        lanes[k] = (lanes[k] * _FACTORS[k] + byte + 1) % _PRIMES[k]


@jit
def _add_number(lanes: Int64s, value: int) -> None:
    for k in range(8):
        _add_byte(lanes, (value >> 8 * k) & 0xFF)


@jit
def _add_text(lanes: Int64s, data: Bytes, start: int, end: int) -> None:
    _add_number(lanes, end - start)
    for at in range(start, end):
        _add_byte(lanes, np.int64(data[at]))


@jit
def _kind(data: Bytes, topic: int, topic_end: int, queue: int, spans: Int64s) -> int:
    topic_number = number_of_name(data, topic, topic_end, _TOPIC_TEXT, _TOPIC_LENGTH)
    real, real_end = spans[2 * _REAL_TOPIC], spans[2 * _REAL_TOPIC + 1]
    if topic_number == 0:
        return SCHEDULED if real >= 0 else NO_KIND
    if topic_number == 1:
        return TIMED if queue == 0 and real >= 0 and spans[2 * _OUT_MS] >= 0 else NO_KIND
    if topic_number == 2:
        return HALF if queue == 0 else NO_KIND
    if topic_number == 3:
        return DISCARD
    if topic_number == 4:
        tag, tag_end = spans[2 * _TAGS], spans[2 * _TAGS + 1]
        return DECIDED if queue == 0 and tag >= 0 and tag_end - tag == 1 and data[tag] == _REMOVE else NO_KIND
    # MessageExtBrokerInner.getDelayTimeLevel: a level of 0 is none.
    if real >= 0 and _number(data, spans, _DELAY) > 0 and real_end - real == topic_end - topic:
        k = 0
        while k < topic_end - topic and data[real + k] == data[topic + k]:
            k += 1
        if k == topic_end - topic:
            return COPY
    return FIRED if spans[2 * _DEQUEUE_MS] >= 0 else NO_KIND


@jit
def _key(data: Bytes, spans: Int64s, lanes: Int64s) -> int:
    """Return a digest of UNIQ_KEY, or of the one that a delete mark names (``TimerMessageStore.buildDeleteKey``); 0 for none.

    A mark names the topic, too, for brokers before 5.4, and where 5.5 is told so: ``REAL_TOPIC+UNIQ_KEY``.
    """
    start, end = spans[2 * _UNIQ_KEY], spans[2 * _UNIQ_KEY + 1]
    if spans[2 * _DEL_KEY] >= 0:
        start, end = spans[2 * _DEL_KEY], spans[2 * _DEL_KEY + 1]
        real = spans[2 * _REAL_TOPIC]
        length = spans[2 * _REAL_TOPIC + 1] - real
        if real >= 0 and end - start > length and data[start + length] == _PLUS:
            k = 0
            while k < length and data[start + k] == data[real + k]:
                k += 1
            start += length + 1 if k == length else 0
    if start < 0:
        return 0
    for k in range(4):
        lanes[k] = 17
    _add_text(lanes, data, start, end)
    return int(lanes[0] << 31 | lanes[1])


@jit
def _read(data: Bytes, fields: Int64s, out: Int64s, spans: Int64s, lanes: Int64s) -> None:
    for n in range(fields.shape[1]):
        _find(data, fields[c.PROPS_START, n], fields[c.PROPS_END, n], spans)
        topic, topic_end, queue = fields[c.TOPIC_START, n], fields[c.TOPIC_END, n], fields[c.QUEUE_ID, n]
        kind = _kind(data, topic, topic_end, queue, spans)
        if kind in (SCHEDULED, TIMED, HALF, DECIDED) and not c.gives_unit(fields[c.SYS_FLAG, n]):
            # A broker reads these topics through their queues alone.
            kind = NO_KIND
        out[0, n] = kind
        if kind in (NO_KIND, DECIDED):
            continue
        key, key_end = spans[2 * _UNIQ_KEY], spans[2 * _UNIQ_KEY + 1]
        for k in range(4):
            lanes[k] = 17
        if key >= 0:
            _add_text(lanes, data, key, key_end)
        if kind in (HALF, DISCARD):
            _add_number(lanes, -2)
            if key < 0:
                _add_number(lanes, fields[c.QUEUE_OFFSET, n])
        else:
            if kind in (SCHEDULED, TIMED):
                topic, topic_end = spans[2 * _REAL_TOPIC], spans[2 * _REAL_TOPIC + 1]
                queue = _number(data, spans, _REAL_QID)
            _add_text(lanes, data, topic, topic_end)
            _add_number(lanes, queue)
            if kind in (SCHEDULED, COPY):
                _add_number(lanes, -1)
                _add_number(lanes, _number(data, spans, _DELAY))
            else:
                _add_number(lanes, _number(data, spans, _OUT_MS))
            _add_number(lanes, fields[c.RECONSUME_TIMES, n])
        _add_number(lanes, fields[c.BODY_CRC, n])
        _add_number(lanes, fields[c.BORN_TIME, n])
        out[1, n] = lanes[0] << 31 | lanes[1]
        out[2, n] = lanes[2] << 31 | lanes[3]
        out[3, n] = _number(data, spans, _OUT_MS)
        out[4, n] = signed32(java_hash(data, topic, topic_end, 0))
        out[5, n] = _number(data, spans, _CHECK_TIMES if kind in (HALF, DISCARD) else _ROLL_TIMES)
        out[6, n] = 1 if spans[2 * _DEL_KEY] >= 0 else 0
        out[7, n] = 1 if key >= 0 else 0
        out[8, n] = _key(data, spans, lanes)


@jit
def _named(data: Bytes, starts: Int64s, ends: Int64s, out: Int64s, owner: Int64s) -> int:
    """Put down the offsets that the bodies ``data[starts[k]:ends[k]]`` name, and the k of each. Return their count.

    ``TransactionalMessageServiceImpl.fillOpRemoveMap``: one number in 4.9, several with commas between and behind in 5.x.
    """
    count = 0
    for k in range(len(starts)):
        at = starts[k]
        while at < ends[k]:
            stop = at
            while stop < ends[k] and data[stop] != _COMMA:
                stop += 1
            number, value = parse_number(data, at, stop, 0, INT64_MAX)
            if number:
                out[count], owner[count] = value, k
                count += 1
            at = stop + 1
    return count


def _decided(data: Bytes, rows: Rows, bodies: tuple[Int64s, Int64s]) -> Rows:
    """Return a row for each offset that the op messages ``rows`` name; it goes to the task that its offset says."""
    starts, ends = bodies
    # Each number takes a byte at least, and a comma behind it.
    room = int((ends - starts + 1).sum() // 2 + len(starts))
    offsets, owner = np.empty(room, np.int64), np.empty(room, np.int64)
    count = _named(data, starts, ends, offsets, owner)
    decided = rows[owner[:count]]
    decided["queue_offset"] = decided["digest"] = offsets[:count]
    return decided


def read_evidence(data: Bytes, base: int, messages: MessageArrays) -> Rows:
    """Return the records of a scanned block (``Block``) that are evidence: rows of EVIDENCE in the order of the log, DECIDED
    last."""
    if not len(messages.phy_offset):
        return np.zeros(0, EVIDENCE)
    fields = c.read_fields(data, base, messages.phy_offset, False)
    out = np.zeros((9, fields.shape[1]), np.int64)
    _read(data, fields, out, np.empty(2 * len(_NAMES), np.int64), np.empty(4, np.int64))
    chosen = np.flatnonzero(out[0])
    rows = np.zeros(len(chosen), EVIDENCE)
    for name, number in _COLUMNS:
        rows[name] = out[number, chosen]
    rows["phy_offset"], rows["size"] = messages.phy_offset[chosen], messages.size[chosen]
    rows["queue"], rows["queue_offset"] = fields[c.QUEUE_ID, chosen], fields[c.QUEUE_OFFSET, chosen]
    rows["store_time"] = fields[c.STORE_TIME, chosen]
    # The tagsCode of a record of SCHEDULE_TOPIC_XXXX is its time (CommitLog.checkMessageAndReturnSize).
    rows["due"] = np.where(out[0, chosen] == SCHEDULED, messages.tags_code[chosen], out[3, chosen])
    ops = rows["kind"] == DECIDED
    if not ops.any():
        return rows
    bodies = fields[c.BODY_START, chosen][ops], fields[c.BODY_END, chosen][ops]
    return np.concatenate([rows[~ops], _decided(data, rows[ops], bodies)])


# ------------------------------------------------------------------------------------------------------------- units of timers
# What a unit of ``timerlog`` leads to, and what a broker does with that when it reads its slot (5.3.3 to 5.5.1).

FITS, PASSED_OVER, OTHER, STUCK = range(4)
"""The record may be that of the unit; there is nothing that a broker delivers; it delivers another message; it tries for ever,
since the record has no real queue (``TimerMessageStore.convertMessage``)"""


@jit
def _fate(data: Bytes, at: int, unit: Int64s, record: RecordArrays, spans: Int64s) -> int:
    """Return what a broker does with the sound record at ``data[at]``; ``unit`` is one row of ``unit_fates``."""
    rec, size, time, written, magic, topic_hash = record.rec, unit[1], unit[2], unit[3], unit[4], unit[5]
    _find(data, rec[PROPS_START], rec[PROPS_END], spans)
    real, real_end, queue = spans[2 * _REAL_TOPIC], spans[2 * _REAL_TOPIC + 1], spans[2 * _REAL_QID]
    is_mark, rolls = spans[2 * _DEL_KEY] >= 0, magic & MAGIC_ROLL != 0
    is_timer = _kind(data, rec[TOPIC_START], rec[TOPIC_END], rec[QUEUE_ID], spans) == TIMED
    if is_timer and rec[TOTAL] == size and is_mark == (magic & MAGIC_DELETE != 0):
        due = _number(data, spans, _OUT_MS)
        # What is overdue has the time of another slot in a build's own files (``timer_files.place``).
        in_time = due >= time if rolls else due == time or due < written
        if in_time and signed32(java_hash(data, real, real_end, 0)) == topic_hash:
            return FITS
    if magic & MAGIC_DELETE and not rolls:
        return PASSED_OVER
    if not rolls:
        # doPut refuses a mark, and looks at nothing else of it.
        number = queue >= 0 and parse_number(data, queue, spans[2 * _REAL_QID + 1], INT32_MIN, INT32_MAX)[0]
        if not number or (real < 0 and not is_mark):
            return STUCK
        if is_mark:
            return PASSED_OVER
    # HookUtils.checkBeforePutMessage
    body = int32_at(data, at + r.AT_BODY_LENGTH + addresses_extra(rec[SYS_FLAG]))
    return OTHER if body > 0 else PASSED_OVER


@jit
def _fates(stretch: Stretch, units: Int64s, out: Int64s, record: RecordArrays, spans: Int64s) -> None:
    for n in range(len(units)):
        at = units[n, 0] - stretch.base
        out[n] = PASSED_OVER
        # TimerMessageStore.getMessageByCommitOffset reads as many bytes as the unit says.
        if at < 0 or at + units[n, 1] > stretch.filled:
            continue
        if check_record(stretch, at, r.CRC_NONE, record) == r.GOOD and record.rec[TOTAL] <= units[n, 1]:
            out[n] = _fate(stretch.data, at, units[n], record, spans)


def unit_fates(units: Rows, data: Bytes, base: int) -> Int64s:
    """Return what a broker does with units of ``timerlog``, rows of LOG_UNIT: one of FITS, PASSED_OVER, OTHER, STUCK each.

    ``data``, uint8, is a part of one segment, from offset ``base`` of the log on; what reaches over it is not there.
    """
    table = np.empty((len(units), 6), np.int64)
    for column, name in enumerate(("phy_offset", "record_size", "delayed", "written", "magic", "topic_hash")):
        table[:, column] = units[name]
    table[:, 2] += table[:, 3]
    out, end = np.empty(len(units), np.int64), base + len(data)
    _fates(Stretch(data, len(data), base, end, end), table, out, new_record(), np.empty(2 * len(_NAMES), np.int64))
    return out
