"""Layout of one commitlog record (RocketMQ ``CommitLog``, ``MessageExtEncoder``). All integers big-endian, signed.

offset  field                       bytes
0       TOTALSIZE                   4
4       MAGICCODE                   4
8       BODYCRC                     4
12      QUEUEID                     4
16      FLAG                        4
20      QUEUEOFFSET                 8
28      PHYSICALOFFSET              8
36      SYSFLAG                     4
40      BORNTIMESTAMP               8
48      BORNHOST                    8, or 20 for IPv6
56 *    STORETIMESTAMP              8
64 *    STOREHOST                   8, or 20 for IPv6
72 *    RECONSUMETIMES              4
76 *    PREPAREDTRANSACTIONOFFSET   8
84 *    BODYLENGTH, BODY            4 + n
        TOPICLENGTH, TOPIC          1 + n   (V2: 2 + n)
        PROPERTIESLENGTH, ...       2 + n

* twelve bytes later for each host that is IPv6
"""

from __future__ import annotations

from typing import Final

INT64_MAX: Final = 2**63 - 1
CRC_NONE, CRC_BODY, CRC_ALL = range(3)
"""Which checksums are verified: none, the body's, the whole record's as well where it has one"""
MAGIC_V1: Final = -626843481
"""``MessageDecoder.MESSAGE_MAGIC_CODE``"""
MAGIC_V2: Final = -626843477
"""``MessageDecoder.MESSAGE_MAGIC_CODE_V2``: 5.x, topics longer than 127 bytes"""
MAGIC_BLANK: Final = -875286124
"""``CommitLog.BLANK_MAGIC_CODE``: fills the rest of a segment"""

AT_BODY_CRC: Final = 8
AT_QUEUE_ID: Final = 12
AT_FLAG: Final = 16
AT_QUEUE_OFFSET: Final = 20
AT_PHYSICAL_OFFSET: Final = 28
AT_SYS_FLAG: Final = 36
AT_BORN_TIMESTAMP: Final = 40
AT_BORN_HOST: Final = 48
AT_STORE_TIMESTAMP: Final = 56
AT_STORE_HOST: Final = 64
AT_RECONSUME_TIMES: Final = 72
AT_PREPARED_OFFSET: Final = 76
AT_BODY_LENGTH: Final = 84
HEADER_SIZE: Final = 88
"""Bytes before the body, both hosts IPv4."""
IPV6_EXTRA: Final = 12
FILLER_MIN: Final = 8
"""``CommitLog.END_FILE_MIN_BLANK_LENGTH``: TOTALSIZE and MAGICCODE of a filler"""
RECORD_MIN: Final = HEADER_SIZE + 1 + 2

FLAG_TRANSACTION_MASK: Final = 0x0C
TRANSACTION_NONE: Final = 0x00
TRANSACTION_PREPARED: Final = 0x04
TRANSACTION_COMMIT: Final = 0x08
TRANSACTION_ROLLBACK: Final = 0x0C
FLAG_INNER_BATCH: Final = 0x80
"""``MessageSysFlag.INNER_BATCH_FLAG``: several messages in one record, of a batch ConsumeQueue"""
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20

CRC_PROPERTY_SIZE: Final = 20
"""``CommitLog.CRC32_RESERVED_LEN``: ``__CRC32#``, 0x01, ten digits, 0x02"""

# A unit's logical byte offset (queue offset x 20) and the end of its file must stay below 2**63.
QUEUE_OFFSET_MAX: Final = (2**63 - 2**40) // 20

# What a look at one position of the log can say. Codes from FIRST_DAMAGE on are kinds of damage.
GOOD: Final = 0
LIMIT: Final = 1
MORE: Final = 2
FILLER: Final = 3
ZERO: Final = 4
NEW_NAME: Final = 5
UNITS_FULL: Final = 6
ITEMS_FULL: Final = 7
QUEUES_FULL: Final = 8
LATER: Final = 9
NOT_FOUND: Final = 10
LMQ_MALFORMED: Final = 11
NEW_LMQS: Final = 12
FIRST_DAMAGE: Final = 20
BAD_MAGIC: Final = 20
BAD_SIZE: Final = 21
BAD_LENGTHS: Final = 22
BAD_FILLER: Final = 24
NO_ROOM: Final = 25
# From FIRST_FRAMED on the record's extent is known all the same: what follows it is looked at next.
FIRST_FRAMED: Final = 30
BAD_BODY_CRC: Final = 30
BAD_PROPERTY_CRC: Final = 31
BAD_NUMBER: Final = 32
BAD_TOPIC: Final = 33
BAD_QUEUE: Final = 34
BAD_VERSION: Final = 35
BAD_POSITION: Final = 37

REASONS: Final = {
    ZERO: "zeros where a record should start",
    BAD_MAGIC: "bad magic code",
    BAD_SIZE: "impossible record size",
    BAD_LENGTHS: "record size differs from the sum of its parts",
    BAD_POSITION: "physical offset is not where the record lies",
    BAD_FILLER: "end-of-segment filler of a wrong size",
    NO_ROOM: "too few bytes left in the segment for a record",
    BAD_BODY_CRC: "body CRC does not match",
    BAD_PROPERTY_CRC: "record CRC (__CRC32#) does not match",
    BAD_NUMBER: "DELAY, INNER_NUM or INNER_BASE is not a number",
    BAD_TOPIC: "topic is not one plain path component",
    BAD_QUEUE: "impossible queue id or queue offset",
    BAD_VERSION: "V2 record, unknown to RocketMQ 4.9",
}
MISSING_SEGMENT: Final = "segment missing"
OUT_OF_LINE: Final = "queue offset out of line"
