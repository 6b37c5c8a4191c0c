"""ConsumeQueues that a broker keeps in RocksDB, with ``storeType=defaultRocksDB`` and the like: their keys and values, where
each begins and ends, and a way to its units.

The column family ``default`` has a unit for each message of a queue (``RocksDBConsumeQueueTable``, 5.3.3), the
family ``offset`` where each queue begins and ends (``RocksDBConsumeQueueOffsetTable``). A key begins with the topic's
length, so that the units of a queue stand together, in the order of their queue offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.layouts import INT64_MAX

UNITS, OFFSETS = "default", "offset"
"""The two column families."""
ROCKSDB_UNIT: Final = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_time", ">i8")])
"""The value of a unit: 28 bytes, of which the first 20 are those of a unit in a file; store_time in ms."""
CHECKPOINT_TOPIC: Final = b"CHECKPOINT_TOPIC"
"""The topic under whose ``max`` stands how far the log is dispatched (``TopicValidator.RMQ_SYS_ROCKSDB_OFFSET_TOPIC``)."""
_MARK: Final = b"\x01"
_OFFSET_LAYOUT: Final = struct.Struct(">qq")
_QUEUE_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_MAX, _MIN = b"max", b"min"
_HEAD: Final = 5
"""bytes of a key before the topic"""
_UNIT_TAIL, _OFFSET_TAIL = 14, 9
"""bytes of a key behind the topic"""

Int64s = npt.NDArray[np.int64]
Units = npt.NDArray[np.void]


class QueueName(NamedTuple):
    """A queue: its topic in bytes (UTF-8), and its id."""

    topic: bytes
    queue_id: int


class QueueEnd(NamedTuple):
    """What the family ``offset`` says of one end of a queue: the unit that stands there."""

    queue: QueueName
    is_max: bool
    """whether it is the queue's last unit; else its first one, which a broker corrects when it is asked"""
    phy_offset: int
    queue_offset: int


def unit_prefix(queue: QueueName) -> bytes:
    """Return what the keys of all units of a queue begin with."""
    topic = queue.topic
    return _INT32.pack(len(topic)) + _MARK + topic + _MARK + _INT32.pack(queue.queue_id) + _MARK


def unit_key(prefix: bytes, queue_offset: int) -> bytes:
    """Return the key of a queue's unit; ``prefix`` as ``unit_prefix`` has it."""
    return prefix + _QUEUE_OFFSET.pack(queue_offset)


def topics_prefix(length: int, beginning: bytes) -> bytes:
    """Return what the keys begin with that are of topics of ``length`` bytes with this beginning."""
    return _INT32.pack(length) + _MARK + beginning


def behind(prefix: bytes) -> bytes:
    """Return the first key behind all that begin with ``prefix``, such as that of ``unit_prefix``."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def end_key(queue: QueueName, is_max: bool) -> bytes:
    """Return the key in the family ``offset`` of a queue's last unit (``is_max``), or of its first one."""
    topic = queue.topic
    return b"".join((
        _INT32.pack(len(topic)), _MARK, topic, _MARK, _MAX if is_max else _MIN, _MARK, _INT32.pack(queue.queue_id),
    ))  # fmt: skip


def ends_prefix(topic: bytes) -> bytes:
    """Return what the keys in the family ``offset`` begin with that are of the last units of a topic's queues."""
    return end_key(QueueName(topic, 0), is_max=True)[: -_INT32.size]


CHECKPOINT_KEY: Final = end_key(QueueName(CHECKPOINT_TOPIC, 0), is_max=True)
"""Its value is the byte of the log behind the last record that was dispatched (int64)."""


def _parts(key: bytes, tail: int) -> tuple[bytes, bytes]:
    """Return the topic of a key, and the ``tail`` bytes behind it; nothing for a key of another kind."""
    length = len(key) - _HEAD - tail
    if length < 0 or _INT32.unpack_from(key)[0] != length or key[4:5] != _MARK or key[_HEAD + length :][:1] != _MARK:
        return b"", b""
    return key[_HEAD : _HEAD + length], key[_HEAD + length :]


def queue_of_unit(key: bytes) -> QueueName | None:
    """Return the queue of a unit's key; None for a key of another kind."""
    topic, tail = _parts(key, _UNIT_TAIL)
    return QueueName(topic, _INT32.unpack_from(tail, 1)[0]) if tail[5:6] == _MARK else None


def queue_end(key: bytes, value: bytes) -> QueueEnd | None:
    """Return what a pair of the family ``offset`` says; None for one of another kind, as the check point."""
    topic, tail = _parts(key, _OFFSET_TAIL)
    if len(value) != _OFFSET_LAYOUT.size or tail[4:5] != _MARK or tail[1:4] not in (_MAX, _MIN):
        return None
    queue = QueueName(topic, _INT32.unpack_from(tail, 5)[0])
    return QueueEnd(queue, tail[1:4] == _MAX, *_OFFSET_LAYOUT.unpack(value))


def is_possible(end: QueueEnd) -> bool:
    """Return whether a queue can end there; -1 is the queue offset of one that had no unit yet."""
    return end.phy_offset >= 0 and -1 <= end.queue_offset < INT64_MAX


def end_value(phy_offset: int, queue_offset: int) -> bytes:
    """Return the value of a pair in the family ``offset``."""
    return _OFFSET_LAYOUT.pack(phy_offset, queue_offset)


SPOOLED: Final = np.dtype([("queue_offset", ">i8"), *((name, ROCKSDB_UNIT[name]) for name in ROCKSDB_UNIT.names or ())])
"""A unit beside its queue offset: the end of its key, and its value (36 bytes)."""


def spooled(queue_offset: Int64s, phy_offset: Int64s, size: Int64s, tags_code: Int64s, store_time: Int64s) -> Units:
    """Return units (dtype SPOOLED) of their columns, each int64 (n)."""
    rows = np.empty(len(queue_offset), SPOOLED)
    for name, column in zip(SPOOLED.names or (), (queue_offset, phy_offset, size, tags_code, store_time), strict=True):
        rows[name] = column
    return rows


def pairs_of(prefix: bytes, rows: Units) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and the values of a queue's units (dtype SPOOLED); ``prefix`` as ``unit_prefix`` has it."""
    data, size, tail = rows.tobytes(), SPOOLED.itemsize, _QUEUE_OFFSET.size
    starts = range(0, len(data), size)
    return [prefix + data[at : at + tail] for at in starts], [data[at + tail : at + size] for at in starts]


def checkpoint_value(phy_offset: int) -> bytes:
    """Return the value of CHECKPOINT_KEY."""
    return _QUEUE_OFFSET.pack(phy_offset)


def queue_offsets(keys: Sequence[bytes]) -> Int64s:
    """Return the queue offsets (int64) of keys of units."""
    return np.frombuffer(b"".join(key[-8:] for key in keys), ">i8").astype(np.int64)


def units(values: Sequence[bytes]) -> npt.NDArray[np.void]:
    """Return units (ROCKSDB_UNIT) of their values. A value of another length than a unit's is zeros."""
    size = ROCKSDB_UNIT.itemsize
    if any(len(value) != size for value in values):
        values = [value if len(value) == size else bytes(size) for value in values]
    return np.frombuffer(b"".join(values), ROCKSDB_UNIT)


TOPIC_MAX: Final = 281
"""bytes of the longest topic of which a broker can make a key (``RocksDBConsumeQueueStore.MAX_KEY_LEN``)"""


class QueuePlace(NamedTuple):
    """A physical offset and a queue offset that belong together."""

    phy_offset: int
    queue_offset: int


class UnitReader(Protocol):
    """The units of a database, as it was when it was opened."""

    def phy_offset(self, queue: QueueName, queue_offset: int, /) -> int | None:
        """Return where a unit leads; None where there is none. Raises InputError where it cannot be read."""

    def phy_offsets(self, queue: QueueName, first: int, stop: int, /) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the queue offsets in [first, stop) that have a unit, and where each leads, both int64 and in batches."""


@dataclass(frozen=True, slots=True)
class DatabaseQueue:
    """What the family ``offset`` says of one queue."""

    name: QueueName
    last: QueuePlace | None = None
    """its last unit; None where the database does not say"""
    first: QueuePlace | None = None
    """its first unit, as it was when somebody last asked for it"""


@dataclass(frozen=True)
class DatabaseQueues:
    """All queues of a database, by topic and queue id."""

    reader: UnitReader
    queues: Mapping[tuple[str, int], DatabaseQueue] = field(default_factory=dict)
    dispatched: int = 0
    """the check point: the byte behind the last record that was dispatched; 0 where the database has none"""


@dataclass(frozen=True)
class CombinedQueues:
    """Queues in RocksDB beside those in files, which give messages their offsets (``CombineConsumeQueueStore``)."""

    database: DatabaseQueues
    is_read: bool = False
    """consumers are given what the database has (``combineCQPreferCQType``), and not the files"""
    extra_segments: int = 3
    """``combineCQMaxExtraSearchCommitLogFiles``"""


class NoUnits:
    """The reader of an empty database."""

    def phy_offset(self, _queue: QueueName, _queue_offset: int) -> int | None:
        return None

    def phy_offsets(self, _queue: QueueName, _first: int, _stop: int) -> Iterator[tuple[Int64s, Int64s]]:
        yield from ()
