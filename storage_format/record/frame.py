"""Check whether a whole, undamaged record stands at a byte of the log (``CommitLog.checkMessageAndReturnSize`` of 4.9 to 5.5).

Besides what the broker checks, PHYSICALOFFSET must be where the record lies. Nothing else tells a record from its copy in a
message's body, or finds a segment under a wrong name. Its properties are found on the way.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import signed32
from rocketmq_reindex.storage_format.kernels.jit import allocating, inlined, jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import (
    BLOCK,
    CAN_LOAD,
    LOW31,
    WORD,
    bits_between,
    byte_at,
    crc32,
    crc32_of_range,
    find_byte,
    int16_at,
    int32_at,
    int64_at,
    load_word,
    lowest_bit,
    prefix_sums,
)
from rocketmq_reindex.storage_format.layouts import UINT32_MAX
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.entry import check_entry, position_of
from rocketmq_reindex.storage_format.record.layout import CRC_ALL, CRC_NONE

# ------------------------------------------------------------------------------------------------------------------- properties
# Where the properties that matter here lie in a record (``MessageDecoder.string2messageProperties`` of 4.9 to 5.5).
#
# ``name 0x01 value 0x02 ...``: the last 0x02 may be missing, a piece counts only if name and value have at least one character
# each, a value runs to the next 0x02 and may hold 0x01, and of a repeated name the last one wins. A malformed sequence never
# includes an ASCII byte, so the raw bytes split exactly where the decoded text would.

NAMES: Final = (
    b"KEYS",
    b"UNIQ_KEY",
    b"TAGS",
    b"DELAY",
    b"INNER_NUM",
    b"INNER_BASE",
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
    b"__CRC32#",
)
KEYS, UNIQ_KEY, TAGS, DELAY, INNER_NUM, INNER_BASE, MULTI_DISPATCH, MULTI_OFFSET, CRC32 = range(len(NAMES))

NAME_SEPARATOR: Final = 1
PROPERTY_SEPARATOR: Final = 2

_LONGEST: Final = max(len(name) for name in NAMES)
_TEXT: Final = np.array([list(name.ljust(_LONGEST, b"\0")) for name in NAMES], dtype=np.uint8)
_LENGTH: Final = np.array([len(name) for name in NAMES], dtype=np.int64)
_WORD: Final = np.array([int.from_bytes(name[:WORD].rjust(WORD, b"\0"), "little", signed=True) for name in NAMES], np.int64)
"""The names of up to a word as the last bytes of one"""


@inlined
def number_of_name(
    data: npt.NDArray[np.uint8], start: int, end: int, texts: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]
) -> int:
    """Return which of the names in ``texts``, uint8 (names, longest), ``data[start:end]`` is, or -1. ``lengths`` is int64
    (names,)."""
    length = end - start
    for number in range(len(lengths)):
        if lengths[number] != length:
            continue
        k = 0
        while k < length and data[start + k] == texts[number, k]:
            k += 1
        if k == length:
            return number
    return -1


@inlined
def _name_number(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return which of NAMES ``data[start:end]`` is, or -1."""
    length = end - start
    if CAN_LOAD:  # noqa: SIM102  # a condition of its own: see kernels.raw_bytes
        if length <= WORD and start + WORD <= len(data):
            word = load_word(data, start) << 8 * (WORD - length)
            for number in range(len(_LENGTH)):
                if _WORD[number] == word and _LENGTH[number] == length:
                    return number
            return -1
    return int(number_of_name(data, start, end, _TEXT, _LENGTH))


@inlined
def next_piece(data: npt.NDArray[np.uint8], start: int, end: int) -> tuple[int, int, int]:
    """Return where the next piece of ``data[start:end]`` that counts has its name, its 0x01 and its end; ``end`` for none."""
    at = start
    while at < end:
        split = find_byte(data, at, end, NAME_SEPARATOR, PROPERTY_SEPARATOR)
        if split >= end:
            break
        if data[split] == PROPERTY_SEPARATOR:
            at = split + 1
            continue
        stop = find_byte(data, split + 1, end, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        if split > at and stop > split + 1:
            return at, split, stop
        at = stop + 1
    return end, end, end


@inlined
def scan_properties(data: npt.NDArray[np.uint8], start: int, end: int, spans: npt.NDArray[np.int64]) -> None:
    """Set ``spans`` to start and end of the value of each of NAMES in ``data[start:end]``; a start is -1 where there is none.

    ``spans``: int64 (2 * len(NAMES),), indexes into ``data``.
    """
    for k in range(2 * len(NAMES)):
        spans[k] = -1
    # Of the bytes from ``block`` up to ``known``, a bit each: which are separators, and which end a property.
    block = known = start
    separators = ends = np.int64(0)
    at = start
    while at < end:
        if CAN_LOAD:  # noqa: SIM102
            if at >= known and at + BLOCK <= len(data):
                block, known = at, at + BLOCK
                separators = bits_between(data, at, NAME_SEPARATOR, PROPERTY_SEPARATOR)
                ends = bits_between(data, at, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        # The first 0x01 ends the name, a 0x02 the piece.
        split = at + lowest_bit(separators >> (at - block)) if at < known else known
        if split >= known:
            split = find_byte(data, max(at, known), end, NAME_SEPARATOR, PROPERTY_SEPARATOR)
        if split >= end:
            return
        if byte_at(data, split) == PROPERTY_SEPARATOR:
            at = split + 1
            continue
        stop = split + lowest_bit(ends >> (split - block)) if split < known else known
        if stop >= known:
            stop = find_byte(data, max(split + 1, known), end, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR)
        stop = min(stop, end)
        if split > at and stop > split + 1:
            number = _name_number(data, at, split)
            if number >= 0:
                spans[2 * number] = split + 1
                spans[2 * number + 1] = stop
        at = stop + 1


# ------------------------------------------------------------------------------------------------------------------------ frame


# Fields of a record, in the int64 array ``rec``. START and END are indexes into the data.
TOTAL, QUEUE_ID, QUEUE_OFFSET, SYS_FLAG, STORE_TIME, TOPIC_START, TOPIC_END, PROPS_START, PROPS_END, VERSION = range(10)
REC_SIZE: Final = 10
SPANS_SIZE: Final = 2 * len(NAMES)


class Stretch(NamedTuple):
    """The bytes of a segment that are in memory: ``data[:filled]``, uint8, is the log from absolute offset ``base`` on.

    ``segment_end`` is where the segment would end whole, ``data_end`` where its file ends. ``lead`` is the bytes in front of
    each record: ENTRY_HEAD in a log of DLedger, else 0. What is said to stand at a byte begins with them.
    """

    data: npt.NDArray[np.uint8]
    filled: int
    base: int
    segment_end: int
    data_end: int
    lead: int = 0


class RecordArrays(NamedTuple):
    """What a check says of a record, int64: ``rec`` by the names above, ``spans`` as ``scan_properties`` fills it."""

    rec: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]


def new_record(fields: int = REC_SIZE) -> RecordArrays:
    """Return room for a record of so many fields."""
    return RecordArrays(np.zeros(fields, np.int64), np.zeros(SPANS_SIZE, np.int64))


@inlined
def moved(stretch: Stretch, distance: int) -> Stretch:
    """Return the same bytes as if their segment lay ``distance`` bytes further on in the log."""
    segment_end, data_end = stretch.segment_end + distance, stretch.data_end + distance
    return Stretch(stretch.data, stretch.filled, stretch.base + distance, segment_end, data_end, stretch.lead)


@inlined
def addresses_extra(sys_flag: int) -> int:
    """Return how many bytes longer the two addresses of a record are than two IPv4 ones."""
    extra = r.IPV6_EXTRA if sys_flag & r.FLAG_BORN_HOST_V6 else 0
    return extra + (r.IPV6_EXTRA if sys_flag & r.FLAG_STORE_HOST_V6 else 0)


@jit
def _stored_property_crc(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return the number in a ``__CRC32#`` value: decimal digits, lowest first (``MessageDecoder.createCrc32``), in 32 bits."""
    value = np.int64(0)
    for at in range(end - 1, start - 1, -1):
        value = (value * 10 + np.int64(data[at]) - 0x30) & UINT32_MAX
    return int(signed32(value))


@inlined
def check_record(stretch: Stretch, at: int, crc_mode: int, record: RecordArrays) -> int:
    """Return what stands at ``data[at]``: GOOD, FILLER, ZERO, MORE (not all of it is in memory yet) or a kind of damage.

    GOOD, and damage of known length, fill ``rec``; GOOD fills ``spans``. ``rec[TOTAL]`` is the bytes of the record and of what
    is in front of it. MORE sets it to the bytes wanted from ``at`` on.
    """
    data, filled, lead = stretch.data, stretch.filled, stretch.lead
    rec, spans = record.rec, record.spans
    phy_offset = stretch.base + at
    entry_size = np.int64(0)
    if lead:
        code = check_entry(data, filled, at, phy_offset, (stretch.segment_end, stretch.data_end), rec)
        if code != r.GOOD:
            return code
        entry_size = rec[TOTAL]
        at += lead
        phy_offset += lead
    room = stretch.data_end - phy_offset
    if room < r.FILLER_MIN:
        return r.NO_ROOM
    rec[TOTAL] = lead + r.FILLER_MIN
    if at + r.FILLER_MIN > filled:
        return r.MORE
    total = int32_at(data, at)
    magic = int32_at(data, at + 4)
    if lead and total != entry_size - lead:
        return r.BAD_LENGTHS
    if total == 0:
        return r.ZERO
    if magic == r.MAGIC_BLANK and not lead:
        return r.FILLER if total == stretch.segment_end - phy_offset else r.BAD_FILLER
    if magic != r.MAGIC_V1 and magic != r.MAGIC_V2:
        return r.BAD_MAGIC
    if total < r.RECORD_MIN or total > room:
        return r.BAD_SIZE
    head = min(total, r.HEADER_SIZE + 2 * r.IPV6_EXTRA + 3)
    rec[TOTAL] = lead + head
    if at + head > filled:
        return r.MORE
    sys_flag = int32_at(data, at + r.AT_SYS_FLAG)
    born_extra = r.IPV6_EXTRA if sys_flag & r.FLAG_BORN_HOST_V6 else 0
    extra = addresses_extra(sys_flag)
    length_size = 1 if magic == r.MAGIC_V1 else 2
    fixed = r.HEADER_SIZE + extra + length_size + 2
    if total < fixed:
        return r.BAD_LENGTHS
    body_length = int32_at(data, at + r.AT_BODY_LENGTH + extra)
    body_size = max(0, body_length)
    if body_size > total - fixed:
        return r.BAD_LENGTHS
    rec[TOTAL] = lead + total
    if at + total > filled:
        return r.MORE
    body = at + r.HEADER_SIZE + extra
    topic = body + body_size + length_size
    if length_size == 1:
        topic_length = byte_at(data, topic - 1)
        topic_length -= 0x100 if topic_length >= 0x80 else 0
    else:
        topic_length = int16_at(data, topic - 2)
    if topic_length < 0 or topic_length > total - fixed - body_size:
        return r.BAD_LENGTHS
    props = topic + topic_length + 2
    props_length = int16_at(data, props - 2)
    props_size = max(0, props_length)
    if fixed + body_size + topic_length + props_size != total:
        return r.BAD_LENGTHS
    rec[QUEUE_ID] = int32_at(data, at + r.AT_QUEUE_ID)
    rec[QUEUE_OFFSET] = int64_at(data, at + r.AT_QUEUE_OFFSET)
    rec[SYS_FLAG] = sys_flag
    rec[STORE_TIME] = int64_at(data, at + r.AT_STORE_TIMESTAMP + born_extra)
    rec[TOPIC_START] = topic
    rec[TOPIC_END] = topic + topic_length
    rec[PROPS_START] = props
    rec[PROPS_END] = props + props_size
    rec[VERSION] = length_size
    if int64_at(data, at + r.AT_PHYSICAL_OFFSET) != phy_offset:
        return r.BAD_POSITION
    if lead and position_of(data, at - lead) != phy_offset - lead:
        return r.BAD_POSITION
    if crc_mode != CRC_NONE and body_size > 0:
        stored = int32_at(data, at + r.AT_BODY_CRC)
        if (crc32(data, body, body + body_size) & LOW31) != stored:
            return r.BAD_BODY_CRC
    scan_properties(data, props, props + props_size, spans)
    if crc_mode == CRC_ALL and spans[2 * CRC32] >= 0:
        expected = _stored_property_crc(data, spans[2 * CRC32], spans[2 * CRC32 + 1])
        if (crc32(data, at, at + total - r.CRC_PROPERTY_SIZE) & LOW31) != expected:
            return r.BAD_PROPERTY_CRC
    return r.GOOD


@jit
def _body_crc_fits(data: npt.NDArray[np.uint8], filled: int, at: int, sums: npt.NDArray[np.int64]) -> bool:
    """Return whether the body of what may be a record at ``at`` has the CRC that its head says.

    It is true where not all of the body is there.
    """
    start = at + r.HEADER_SIZE + addresses_extra(int32_at(data, at + r.AT_SYS_FLAG))
    if start > filled:
        return True
    length = int32_at(data, start - 4)
    if length <= 0 or length > filled - start:
        return True
    return (crc32_of_range(data, sums, start, start + length) & LOW31) == int32_at(data, at + r.AT_BODY_CRC)


@jit
def _next_magic(data: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    """Return the first index below ``stop`` where the first byte of a magic code stands in its place; ``stop`` for none.

    A loop that asks nothing else passes over zeros and bodies at the speed of memory.
    """
    at = start
    while at < stop and data[at + 4] != r.MAGIC_BYTES[0]:
        at += 1
    return at


@allocating
def find_record(stretch: Stretch, start: int, limit: int, crc_mode: int, record: RecordArrays) -> tuple[int, int]:
    """Search ``data[start:limit]`` for the first record whose magic code, physical offset, lengths and CRC hold.

    Returns (GOOD, index), (MORE, index) where the data end before that is known, or (NOT_FOUND, limit). Fillers are not
    searched for: a body may hold one that fits, and all behind it would be lost.
    """
    data, filled, base, data_end, lead = stretch.data, stretch.filled, stretch.base, stretch.data_end, stretch.lead
    rec, spans = record.rec, record.spans
    summed = 0
    sums = np.zeros(0, np.int64)
    # ``at`` is where a record itself may begin. From ``stop`` on none has room, or the data end before it can be told.
    at, last = start + lead, limit + lead
    stop = max(at, min(last, data_end - base - r.RECORD_MIN + 1, filled - r.HEADER_SIZE + 1))
    while True:
        at = _next_magic(data, at, stop)
        if at >= last:
            return r.NOT_FOUND, limit
        if data_end - (base + at) < r.RECORD_MIN:
            return r.NOT_FOUND, limit
        if at + r.HEADER_SIZE > filled:
            rec[TOTAL] = lead + r.HEADER_SIZE
            return r.MORE, at - lead
        # The physical offset comes first: it is wrong for all but true records, and then nothing more is read.
        if data[at + 5] == r.MAGIC_BYTES[1] and int64_at(data, at + r.AT_PHYSICAL_OFFSET) == base + at:
            # Once more bytes were summed up in vain than there are, prefix sums give the CRC of any range.
            cheaply = summed > filled and crc_mode != CRC_NONE
            if cheaply:
                if len(sums) == 0:
                    sums = prefix_sums(data, filled)
                if not _body_crc_fits(data, filled, at, sums):
                    at += 1
                    continue
            code = check_record(stretch, at - lead, CRC_NONE if cheaply else crc_mode, record)
            if code == r.BAD_BODY_CRC or code == r.BAD_PROPERTY_CRC:
                summed += rec[TOTAL]
            if cheaply and code == r.GOOD and crc_mode == CRC_ALL and spans[2 * CRC32] >= 0:
                expected = _stored_property_crc(data, spans[2 * CRC32], spans[2 * CRC32 + 1])
                end = at - lead + rec[TOTAL] - r.CRC_PROPERTY_SIZE
                if (crc32_of_range(data, sums, at, end) & LOW31) != expected:
                    code = r.BAD_PROPERTY_CRC
            if code == r.GOOD or code == r.MORE:
                return code, at - lead
        at += 1
