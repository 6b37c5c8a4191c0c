"""The units of ConsumeQueue files, plain and batch ones: their fields, sizes and marks.

In a plain queue (``ConsumeQueue``) unit i lies at logical byte i x 20. A batch queue (``BatchConsumeQueue``, 5.x) has one unit
for each record, and they follow one another from byte 0 on, whatever their queue offsets: a broker finds them by a binary
search. A file is named by its first logical byte and has its full size from the start; zeros follow its last unit.

By itself: each start reads it, and it imports no numpy.
"""

from typing import Final, NamedTuple

from rocketmq_reindex.storage_format.layouts import INT16, INT16_MAX, INT32, INT32_MAX, INT64, Field, Layout

UNIT_LAYOUT: Final = Layout(
    Field("phy_offset", "phy_offset", INT64),
    Field("size", "size", INT32),
    Field("tagsCode", "tags_code", INT64),
)
"""``ConsumeQueue.putMessagePositionInfo`` of 4.9 to 5.5; ``CQ_STORE_UNIT_SIZE``"""
UNIT_SIZE: Final = UNIT_LAYOUT.size
ROCKSDB_UNIT_SIZE: Final = UNIT_SIZE + 8
"""bytes of a unit in RocksDB, where a store time follows the fields (``RocksDBConsumeQueueTable.CQ_UNIT_SIZE``, 5.3.3)"""
PRE_BLANK_SIZE: Final = INT32_MAX
"""``ConsumeQueue.fillPreBlank``: (0, 2147483647, 0) stands before a queue's first unit in its first file."""
FILL_MAX: Final = 100_000
"""Missing offsets that are filled if nothing else is asked for (``--max-fill``)."""

BATCH_LAYOUT: Final = Layout(
    *UNIT_LAYOUT.fields,
    Field("storeTimestamp", "store_time", INT64),
    Field("baseOffset", "base", INT64),  # queue offset of the record's first message
    Field("batchNum", "count", INT16),  # messages in the record
    Field("compactedOffset", "compacted", INT32),
    Field("reserved", "reserved", INT32),
)
"""``BatchConsumeQueue.putBatchMessagePositionInfo`` of 5.3; ``CQ_STORE_UNIT_SIZE``"""
BATCH_UNIT_SIZE: Final = BATCH_LAYOUT.size
BATCH_COUNT_MAX: Final = INT16_MAX
NOT_COMPACTED: Final = -1
"""``BatchConsumeQueue.INVALID_POS``: compactedOffset of a record that was not compacted"""

EXT_LAYOUT: Final = Layout(
    Field("size", "size", INT16),
    Field("tagsCode", "tags_code", INT64),
    Field("msgStoreTime", "store_time", INT64),
    Field("bitMapSize", "bit_map_size", INT16),
)
"""``ConsumeQueueExt.CqExtUnit``, before its bit map"""
EXT_SIZE_MIN: Final = EXT_LAYOUT.size
END_BLANK: Final = 4
"""``END_BLANK_DATA_LENGTH``: so many bytes at a file's end hold no unit"""
EXT_FILE_MIN: Final = EXT_SIZE_MIN + END_BLANK
ERROR_RATE: Final = 20
"""``maxErrorRateOfBloomFilter``, in percent, of a broker without that setting"""
CONSUMERS: Final = 32
"""``expectConsumerNumUseFilter`` of a broker without that setting"""


class QueueUnit(NamedTuple):
    """A unit at a position of a queue."""

    topic: str
    queue_id: int
    position: int
    phy_offset: int
    size: int
    tags_code: int
