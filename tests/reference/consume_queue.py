"""ConsumeQueue files: 20-byte units `commitLogOffset 8 | size 4 | tagsCode 8` in files of a fixed size."""

import struct
from dataclasses import dataclass, field

from tests.reference import java, names
from tests.reference.queue_order import Unit
from tests.reference.records import Record

UNIT = 20
PRE_BLANK = struct.pack(">qiq", 0, java.INT_MAX, 0)
QueueKey = tuple[str, int]  # topic or LMQ name (a Java string), queue id


@dataclass
class BrokerQueue:
    """ConsumeQueue.putMessagePositionInfo: appends, whatever the queue offset says, or drops."""

    file_size: int
    first: int = 0  # position of the first unit that stands
    units: list[bytes] = field(default_factory=list)
    highest_physical: int = -1
    dropped: list[Unit] = field(default_factory=list)
    misplaced: list[Unit] = field(default_factory=list)
    opened: int = 0  # files, also such as hold nothing but zeros

    def put(self, unit: Unit) -> None:
        if unit.record + unit.size <= self.highest_physical:
            self.dropped.append(unit)
            return
        # MappedFileQueue.getLastMappedFile: before the record is looked at any further.
        at = self.first + len(self.units) if self.units else unit.queue_offset
        self.opened = at // (self.file_size // UNIT) + 1
        if not self.units:
            self.first = unit.queue_offset
        elif 0 < unit.queue_offset < self.first + len(self.units):
            self.dropped.append(unit)
            return
        elif unit.queue_offset != self.first + len(self.units):  # offset 0 skips the check above: appended too
            self.misplaced.append(unit)
        self.highest_physical = unit.record + unit.size
        self.units.append(pack(unit))


def pack(unit: Unit) -> bytes:
    return struct.pack(">qiq", unit.record, unit.size, unit.tags_code)


def queue_files(key: QueueKey, units: dict[int, bytes], file_size: int) -> dict[str, bytes]:
    """{relative path: bytes} of one queue from its units by position; pre-blank before the first."""
    per_file = file_size // UNIT
    first = min(units)
    contents: dict[int, bytearray] = {}
    for position in range(first - first % per_file, max(units) + 1):
        content = contents.setdefault(position // per_file, bytearray(file_size))
        unit = units[position] if position >= first else PRE_BLANK
        at = position % per_file * UNIT
        content[at : at + UNIT] = unit
    topic, queue_id = key
    folder = f"consumequeue/{java.python_text(topic)}/{queue_id}"
    return {f"{folder}/{number * file_size:020d}": bytes(content) for number, content in contents.items()}


def empty_file(key: QueueKey, end: int, opened: int, file_size: int) -> dict[str, bytes]:
    """The last of ``opened`` files, if the units before ``end`` do not reach it."""
    if end > (opened - 1) * (file_size // UNIT):
        return {}
    topic, queue_id = key
    return {f"consumequeue/{java.python_text(topic)}/{queue_id}/{(opened - 1) * file_size:020d}": bytes(file_size)}


def dispatches(record: Record, once: bool) -> list[tuple[QueueKey, Unit]]:
    """The units of one record: its own queue's, then its LMQs'.

    `once`: the same queue named again gets nothing. The broker's own rule differs where it dropped the first:
    `BrokerQueue` knows it.
    """
    if not record.gets_unit:
        return []
    wanted = [(record.topic, record.queue_id, record.queue_offset), *record.lmq]
    out: list[tuple[QueueKey, Unit]] = []
    for name, queue_id, queue_offset in wanted:
        if not once or (name, queue_id) not in [key for key, _ in out]:
            again = sum(other == (name, queue_id, queue_offset) for other in record.lmq) - 1
            counted = again if record.counts_each and name.startswith(names.LMQ_PREFIX) and again > 0 else 0
            out.append(((name, queue_id), Unit(record.offset, record.size, record.tags_code, queue_offset, counted)))
    return out
