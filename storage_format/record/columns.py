"""The fields of many records as columns, and what a broker derives from each: a unit, and index items."""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.jit import inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int16_at, int32_at, int64_at
from rocketmq_reindex.storage_format.record import frame as f, layout as r
from rocketmq_reindex.storage_format.record.frame import SPANS_SIZE, addresses_extra

# --------------------------------------------------------------------------------------------------------------------- dispatch
# What a broker derives from a record besides its bytes: a unit, and index items of its keys (4.9 to 5.5).


@inlined
def gives_unit(sys_flag: int) -> bool:
    """Return whether a record with this SYSFLAG gets a unit (``CommitLogDispatcherBuildConsumeQueue``)."""
    transaction = sys_flag & r.FLAG_TRANSACTION_MASK
    return transaction == r.TRANSACTION_NONE or transaction == r.TRANSACTION_COMMIT


@inlined
def gives_items(sys_flag: int) -> bool:
    """Return whether a record with this SYSFLAG is indexed, if it has keys or tags (``IndexService.buildIndex``)."""
    return sys_flag & r.FLAG_TRANSACTION_MASK != r.TRANSACTION_ROLLBACK


@inlined
def is_filler(sys_flag: int, flag: int) -> bool:
    """Return whether a record with this SYSFLAG and FLAG is a filler for lost bytes (``repair``)."""
    return sys_flag & r.FLAG_TRANSACTION_MASK == r.TRANSACTION_ROLLBACK and flag == r.LOST_FLAG


@inlined
def is_tombstone(flag: int, tags_code: int) -> bool:
    """Return whether a record with this FLAG and tagsCode stands at the offset of a lost message (``repair``)."""
    return flag == r.LOST_FLAG and tags_code == r.LOST_TAG_CODE


@inlined
def count_keys(data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> int:
    """Return how many items the keys of a record give: one for UNIQ_KEY, and one for each of KEYS (``index_record``)."""
    count = 1 if spans[2 * f.UNIQ_KEY] >= 0 else 0
    at = spans[2 * f.KEYS]
    if at >= 0:
        blank = True
        while at < spans[2 * f.KEYS + 1]:
            space = data[at] == 0x20
            if blank and not space:
                count += 1
            blank = space
            at += 1
    return count


# ---------------------------------------------------------------------------------------------------------------------- columns
# The fields of many records as columns: numbers of the header, and where topic, body and properties lie.
#
# The records were checked before (``frame.check_record``). Nothing is checked again here.

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

# Rows of the table that ``read_fields`` fills, a column a record. Those named AT, START and END are indexes into the data.
(
    VERSION,
    BODY_CRC,
    QUEUE_ID,
    FLAG,
    QUEUE_OFFSET,
    SYS_FLAG,
    BORN_TIME,
    BORN_HOST_AT,
    STORE_TIME,
    STORE_HOST_AT,
    RECONSUME_TIMES,
    PREPARED_OFFSET,
    BODY_LENGTH,
    BODY_START,
    BODY_END,
    TOPIC_START,
    TOPIC_END,
    PROPS_START,
    PROPS_END,
    KEYS_START,
    KEYS_END,
    UNIQ_KEY_START,
    UNIQ_KEY_END,
    TAGS_START,
    TAGS_END,
    HAS_UNIT,
    KEY_ITEMS,
) = range(27)
FIELDS: Final = 27


def read_fields(data: Bytes, base: int, phy_offset: Int64s, want_spans: bool) -> Int64s:
    """Return the fields of the records at the absolute offsets ``phy_offset``, int64 (n,): int64 (FIELDS, n).

    ``data``, uint8, is the log from absolute offset ``base`` on. A start is -1 where there is no value. Without ``want_spans``
    the rows of KEYS, UNIQ_KEY, TAGS and KEY_ITEMS are not set.
    """
    out = np.empty((FIELDS, len(phy_offset)), np.int64)
    _read(data, base, phy_offset, want_spans, out, np.empty(SPANS_SIZE, np.int64))
    return out


@jit
def _read(data: Bytes, base: int, phy_offset: Int64s, want_spans: bool, out: Int64s, spans: Int64s) -> None:
    for n in range(len(phy_offset)):
        at = phy_offset[n] - base
        sys_flag = int32_at(data, at + r.AT_SYS_FLAG)
        born_extra = r.IPV6_EXTRA if sys_flag & r.FLAG_BORN_HOST_V6 else 0
        extra = addresses_extra(sys_flag)
        version = 1 if int32_at(data, at + 4) == r.MAGIC_V1 else 2
        body = at + r.HEADER_SIZE + extra
        body_length = int32_at(data, body - 4)
        body_end = body + max(0, body_length)
        topic = body_end + version
        topic_length = np.int64(data[topic - 1]) if version == 1 else np.int64(int16_at(data, topic - 2))
        props = topic + topic_length + 2
        props_end = props + max(0, int16_at(data, props - 2))
        out[VERSION, n] = version
        out[BODY_CRC, n] = int32_at(data, at + r.AT_BODY_CRC)
        out[QUEUE_ID, n] = int32_at(data, at + r.AT_QUEUE_ID)
        out[FLAG, n] = int32_at(data, at + r.AT_FLAG)
        out[QUEUE_OFFSET, n] = int64_at(data, at + r.AT_QUEUE_OFFSET)
        out[SYS_FLAG, n] = sys_flag
        out[BORN_TIME, n] = int64_at(data, at + r.AT_BORN_TIMESTAMP)
        out[BORN_HOST_AT, n] = at + r.AT_BORN_HOST
        out[STORE_TIME, n] = int64_at(data, at + r.AT_STORE_TIMESTAMP + born_extra)
        out[STORE_HOST_AT, n] = at + r.AT_STORE_HOST + born_extra
        out[RECONSUME_TIMES, n] = int32_at(data, at + r.AT_RECONSUME_TIMES + extra)
        out[PREPARED_OFFSET, n] = int64_at(data, at + r.AT_PREPARED_OFFSET + extra)
        out[BODY_LENGTH, n] = body_length
        out[BODY_START, n] = body
        out[BODY_END, n] = body_end
        out[TOPIC_START, n] = topic
        out[TOPIC_END, n] = topic + topic_length
        out[PROPS_START, n] = props
        out[PROPS_END, n] = props_end
        out[HAS_UNIT, n] = gives_unit(sys_flag)
        if want_spans:
            f.scan_properties(data, props, props_end, spans)
            out[KEYS_START, n], out[KEYS_END, n] = spans[2 * f.KEYS], spans[2 * f.KEYS + 1]
            out[UNIQ_KEY_START, n], out[UNIQ_KEY_END, n] = spans[2 * f.UNIQ_KEY], spans[2 * f.UNIQ_KEY + 1]
            out[TAGS_START, n], out[TAGS_END, n] = spans[2 * f.TAGS], spans[2 * f.TAGS + 1]
            out[KEY_ITEMS, n] = count_keys(data, spans) if gives_items(sys_flag) else 0
