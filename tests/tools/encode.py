"""One message as one commitlog record (MessageExtEncoder, CommitLog.DefaultAppendMessageCallback)."""

import ipaddress
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
MIN_BLANK = 8  # CommitLog.END_FILE_MIN_BLANK_LENGTH
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
BORN_V6, STORE_V6 = 0x10, 0x20
EPOCH = 1_700_000_000_000
CRC_PROPERTY = b"__CRC32#"
CRC_RESERVED = len(CRC_PROPERTY) + 12


@dataclass
class Message:
    """What a record is made of. None: what the broker would put there.

    `topic` and `properties` are bytes where they must be malformed UTF-8. Hosts are (address, port); an IPv6
    address sets its bit in `sysflag`. `physical_offset` and `body_crc` make a record lie.
    """

    topic: str | bytes = "TopicA"
    queue_id: int = 0
    body: bytes = b"hello"
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    sysflag: int = 0
    flag: int = 0
    born_timestamp: int = EPOCH
    store_timestamp: int = EPOCH
    born_host: tuple[str, int] = ("10.0.0.1", 51234)
    store_host: tuple[str, int] = ("10.0.0.9", 10911)
    reconsume_times: int = 0
    prepared_offset: int = 0
    version: int | None = None  # 1 or 2; None: 2 where the topic is too long for 1
    queue_offset: int | None = None
    crc_property: bool = False
    lmq: tuple[str, ...] = ()  # names for INNER_MULTI_DISPATCH; the writer adds their offsets
    physical_offset: int | None = None
    body_crc: int | None = None


def property_bytes(properties: Mapping[str, str] | bytes) -> bytes:
    """`name 0x01 value 0x02 ...` as MessageDecoder.messageProperties2String writes it."""
    if isinstance(properties, bytes):
        return properties
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())


@lru_cache(maxsize=64)
def _host(host: tuple[str, int]) -> bytes:
    return ipaddress.ip_address(host[0]).packed + struct.pack(">i", host[1])


def body_start(message: Message) -> int:
    """Where in the record the body begins."""
    return 72 + len(_host(message.born_host)) + len(_host(message.store_host))


def encode(message: Message, offset: int, queue_offset: int = 0) -> bytes:
    """The record that lies at physical offset `offset`; `queue_offset` unless the message names its own.

    Raises ValueError where a part is too long for its length field.
    """
    topic = message.topic if isinstance(message.topic, bytes) else message.topic.encode()
    properties = property_bytes(message.properties)
    version = message.version or (2 if len(topic) > 127 else 1)
    if message.crc_property and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties_length = len(properties) + (CRC_RESERVED if message.crc_property else 0)
    if properties_length > 32767 or len(topic) > (32767 if version == 2 else 127):
        raise ValueError("topic or properties too long for a record")
    born, store = _host(message.born_host), _host(message.store_host)
    sysflag = message.sysflag | (BORN_V6 if len(born) == 20 else 0) | (STORE_V6 if len(store) == 20 else 0)
    body_crc = zlib.crc32(message.body) & 0x7FFFFFFF if message.body_crc is None else message.body_crc
    physical = offset if message.physical_offset is None else message.physical_offset
    number = queue_offset if message.queue_offset is None else message.queue_offset
    tail = b"".join((
        struct.pack(">i", body_crc),
        struct.pack(">iiqqi", message.queue_id, message.flag, number, physical, sysflag),
        struct.pack(">q", message.born_timestamp),
        born,
        struct.pack(">q", message.store_timestamp),
        store,
        struct.pack(">iqi", message.reconsume_times, message.prepared_offset, len(message.body)),
        message.body,
        struct.pack(">b" if version == 1 else ">h", len(topic)),
        topic,
        struct.pack(">h", properties_length),
        properties,
    ))  # fmt: skip
    size = 8 + len(tail) + (CRC_RESERVED if message.crc_property else 0)
    record = struct.pack(">iI", size, MAGIC_V1 if version == 1 else MAGIC_V2) + tail
    return record + crc_text(zlib.crc32(record) & 0x7FFFFFFF) if message.crc_property else record


def crc_text(crc: int) -> bytes:
    """The 5.x property over all before it: ten digits, the lowest first (MessageDecoder.createCrc32)."""
    return CRC_PROPERTY + b"\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"


def blank(size: int) -> bytes:
    """The eight bytes a filler of `size` bytes starts with."""
    return struct.pack(">iI", size, MAGIC_BLANK)
