"""One commitlog record, as CommitLog.checkMessageAndReturnSize reads it, and what we ask of it beyond that.

TOTALSIZE 4 | MAGICCODE 4 | BODYCRC 4 | QUEUEID 4 | FLAG 4 | QUEUEOFFSET 8 | PHYSICALOFFSET 8 | SYSFLAG 4 |
BORNTIMESTAMP 8 | BORNHOST 8 or 20 | STORETIMESTAMP 8 | STOREHOST 8 or 20 | RECONSUMETIMES 4 |
PREPAREDTRANSACTIONOFFSET 8 | BODYLENGTH 4 BODY | TOPICLENGTH 1 or 2 TOPIC | PROPERTIESLENGTH 2 PROPERTIES
"""

import struct
import zlib
from dataclasses import dataclass

from tests.reference import java, names
from tests.reference.settings import Settings

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BORN_V6, STORE_V6 = 0x10, 0x20
TRANSACTION_MASK, PREPARED, COMMIT, ROLLBACK = 0xC, 0x4, 0x8, 0xC
CRC_PROPERTY = "__CRC32#"
CRC_RESERVED = len(CRC_PROPERTY) + 1 + 10 + 1  # name, 0x01, ten digits, 0x02

# Why something is not a record.
ZEROS, MAGIC, SIZE, BLANK, POSITION, CRC = "zeros", "magic", "size", "blank", "position", "crc"
NUMBER, PROPERTY_CRC, TOPIC, QUEUE, VERSION = "number", "property-crc", "topic", "queue", "version"


@dataclass(frozen=True)
class Record:
    """A good record. Texts are Java strings (see java.py), offsets bytes, times milliseconds."""

    offset: int
    size: int
    magic: int
    queue_id: int
    queue_offset: int
    sysflag: int
    store_timestamp: int
    prepared_offset: int
    topic: str
    properties: dict[str, str]
    tags_code: int
    lmq: tuple[tuple[str, int, int], ...] = ()
    warnings: tuple[str, ...] = ()
    counts_each: bool = True
    """a light queue's counter goes up for each time that the record names it: not in 4.9"""
    tag_item: bool = False
    """its TAGS are indexed, too: from 5.4 on"""

    @property
    def transaction(self) -> int:
        return self.sysflag & TRANSACTION_MASK

    @property
    def gets_unit(self) -> bool:
        return self.transaction in (0, COMMIT)

    def index_keys(self) -> list[str]:
        """`topic#key` for UNIQ_KEY, then each of KEYS, then `topic#T#TAGS` (IndexService.buildIndex); none for a rollback."""
        if self.transaction == ROLLBACK:
            return []
        keys = [self.properties["UNIQ_KEY"]] if "UNIQ_KEY" in self.properties else []
        keys += [key for key in self.properties.get("KEYS", "").split(" ") if key]
        keys += [f"T#{self.properties['TAGS']}"] if self.tag_item and "TAGS" in self.properties else []
        return [f"{self.topic}#{key}" for key in keys]


@dataclass(frozen=True)
class Blank:
    """The filler at the end of a segment; `size` reaches exactly to it."""

    size: int


@dataclass(frozen=True)
class Bad:
    """Not a record. `framed` is its length where size, magic and parts still agree, else 0.

    `sound`: and so does its body's CRC, whatever else is wrong with it; `told` is where it says to lie.
    """

    reason: str
    framed: int = 0
    sound: bool = False
    told: int = -1

    @property
    def stands(self) -> bool:
        """Whether a record stands here all the same, where it says to lie: only what it says is refused."""
        return self.sound and self.reason != POSITION


@dataclass(frozen=True)
class _Frame:
    size: int
    magic: int
    body_crc: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sysflag: int
    store_timestamp: int
    prepared_offset: int
    body: bytes
    topic: bytes
    properties: bytes


def parse_properties(text: str) -> dict[str, str]:
    """MessageDecoder.string2messageProperties on a Java string: `name 0x01 value 0x02 ...`, the last wins."""
    found: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, separator, value = piece.partition("\x01")
        if len(piece) >= 3 and separator and name and value:
            found[name] = value
    return found


def parse(data: bytes, at: int, base: int, segment_end: int, rules: Settings) -> Record | Blank | Bad:
    """What stands at `data[at]` of a segment whose first byte is logical offset `base`.

    `segment_end` is the logical end of a full segment: beyond `data` if the file was cut short.
    """
    if len(data) - at < 8:
        return Bad(SIZE)
    size, magic = struct.unpack_from(">iI", data, at)
    if magic == MAGIC_BLANK:
        return Blank(size) if size == segment_end - base - at else Bad(BLANK)
    if size == 0:
        return Bad(ZEROS)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Bad(MAGIC)
    if size < 0 or at + size > len(data):
        return Bad(SIZE)
    frame = _frame(data[at : at + size])
    if frame is None:
        return Bad(SIZE)
    result = _judge(frame, base + at, data[at : at + size], rules)
    if isinstance(result, Record):
        return result
    sound = result not in (CRC, PROPERTY_CRC) and _body_crc_holds(frame)
    return Bad(result, size, sound, frame.physical_offset)


def _frame(raw: bytes) -> _Frame | None:
    """The parts of a record whose lengths add up to exactly len(raw), else None."""
    try:
        size, magic, body_crc, queue_id, _flag, queue_offset, physical, sysflag, _born = struct.unpack_from(">iIiiiqqiq", raw)
        at = 48 + (20 if sysflag & BORN_V6 else 8)
        (store_timestamp,) = struct.unpack_from(">q", raw, at)
        at += 8 + (20 if sysflag & STORE_V6 else 8)
        _reconsumed, prepared, body_length = struct.unpack_from(">iqi", raw, at)
        at += 16
        body = raw[at : at + max(body_length, 0)]
        at += max(body_length, 0)
        (topic_length,) = struct.unpack_from(">h" if magic == MAGIC_V2 else ">b", raw, at)
        at += 2 if magic == MAGIC_V2 else 1
        if topic_length < 0:
            return None
        topic = raw[at : at + topic_length]
        at += topic_length
        (properties_length,) = struct.unpack_from(">h", raw, at)
        at += 2
    except struct.error:
        return None
    properties = raw[at : at + max(properties_length, 0)]
    if at + max(properties_length, 0) != size:
        return None
    return _Frame(
        size,
        magic,
        body_crc,
        queue_id,
        queue_offset,
        physical,
        sysflag,
        store_timestamp,
        prepared,
        body,
        topic,
        properties,
    )


def _judge(frame: _Frame, offset: int, raw: bytes, rules: Settings) -> Record | str:
    """The record, or the reason against it."""
    if frame.physical_offset != offset:
        return POSITION if _body_crc_holds(frame) else CRC
    if rules.crc != "none" and not _body_crc_holds(frame):
        return CRC
    topic = java.decode_utf8(frame.topic)
    properties = parse_properties(java.decode_utf8(frame.properties))
    # First: where it does not hold, a number may be none because the record is torn.
    if rules.crc == "all" and CRC_PROPERTY in properties and not property_crc_holds(raw, properties[CRC_PROPERTY]):
        return PROPERTY_CRC
    tags_code = _tags_code(topic, properties, frame.store_timestamp, rules)
    batches = rules.broker_version != "4.9"
    if tags_code is None or (batches and not batch_numbers_parse(properties)):
        return NUMBER
    if frame.magic == MAGIC_V2 and rules.broker_version == "4.9":
        return VERSION
    if not names.is_plain_component(topic):
        return TOPIC
    lmq: list[tuple[str, int, int]] = []
    warnings: list[str] = []
    if frame.sysflag & TRANSACTION_MASK in (0, COMMIT):
        if frame.queue_id < 0 or not 0 <= frame.queue_offset <= names.HIGHEST_QUEUE_OFFSET:
            return QUEUE
        if rules.lmq and names.lmq_applies(topic, properties, rules.broker_version):
            lmq, warnings = names.lmq_targets(properties, frame.queue_id)
    return Record(
        offset,
        frame.size,
        frame.magic,
        frame.queue_id,
        frame.queue_offset,
        frame.sysflag,
        frame.store_timestamp,
        frame.prepared_offset,
        topic,
        properties,
        tags_code,
        tuple(lmq),
        tuple(warnings),
        counts_each=rules.broker_version != "4.9",
        tag_item=rules.broker_version in ("5.4", "5.5"),
    )


def _body_crc_holds(frame: _Frame) -> bool:
    return not frame.body or zlib.crc32(frame.body) & 0x7FFFFFFF == frame.body_crc


def _tags_code(topic: str, properties: dict[str, str], stored: int, rules: Settings) -> int | None:
    """Hash of TAGS, or the time a delayed message is due; None if its DELAY is no number."""
    code = java.hash_code(properties.get("TAGS", ""))
    if topic == names.SCHEDULE_TOPIC and "DELAY" in properties:
        level = java.parse_number(properties["DELAY"], 32)
        if level is None:
            return None
        delays = rules.delays()
        if level > 0:
            code = java.int64(stored + delays[min(level, len(delays)) - 1])
    return code


def batch_numbers_parse(properties: dict[str, str]) -> bool:
    """CommitLog.setBatchSizeIfNeeded: looked at only where both are there, and from 5.0 on."""
    if not {"INNER_NUM", "INNER_BASE"} <= properties.keys():
        return True
    base = java.parse_number(properties["INNER_BASE"], 64)
    return base is not None and java.parse_number(properties["INNER_NUM"], 16) is not None


def property_crc_holds(raw: bytes, text: str) -> bool:
    """The digits stand lowest first; any character counts as its distance from `0`, in Java ints."""
    expected = 0
    for digit in reversed(text):
        expected = java.int32(expected * 10 + ord(digit) - ord("0"))
    return expected >= 0 and zlib.crc32(raw[: len(raw) - CRC_RESERVED]) & 0x7FFFFFFF == expected
