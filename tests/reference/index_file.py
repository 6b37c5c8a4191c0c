"""IndexFiles under the broker's capacity policy.

header: beginTimestamp 8, endTimestamp 8, beginPhyOffset 8, endPhyOffset 8, hashSlotCount 4, indexCount 4
slots:  hash_slots x 4, the newest item's number
items:  index_items x 20: keyHash 4, phyOffset 8, timeDiff 4 (seconds), number the slot held before 4
"""

import struct
from dataclasses import dataclass, field

from tests.reference import java
from tests.reference.records import Record

HEADER = 40


def key_hash(text: str) -> int:
    """IndexFile.indexKeyHashMethod: abs(hashCode), and 0 where Java's abs stays negative."""
    code = java.hash_code(text)
    return 0 if code == -(2**31) else abs(code)


@dataclass
class IndexFile:
    name: int
    hash_slots: int
    index_items: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    index_count: int = 1
    slots: dict[int, int] = field(default_factory=dict)
    items: list[bytes] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.index_count >= self.index_items

    def put(self, text: str, offset: int, stored: int) -> None:
        """IndexFile.putKey on a file that is not full."""
        number = key_hash(text)
        slot = number % self.hash_slots
        before = self.slots.get(slot, 0)
        seconds = java.divide(java.int64(stored - self.begin_timestamp), 1000)
        if self.begin_timestamp <= 0:
            seconds = 0
        seconds = min(max(seconds, 0), java.INT_MAX)
        self.items.append(struct.pack(">iqii", number, offset, seconds, before))
        self.slots[slot] = self.index_count
        if self.index_count == 1:
            self.begin_offset, self.begin_timestamp = offset, stored
        if before == 0:
            self.slots_used += 1
        self.index_count += 1
        self.end_offset, self.end_timestamp = offset, stored

    def seal(self) -> None:
        """Say it is full, so that the broker opens a new file and keeps this one for good."""
        if self.items:
            self.index_count = self.index_items

    def to_bytes(self, broker_version: str) -> bytes:
        # 4.9 writes the count with the first item, 5.3 also when it closes an empty file.
        count = 0 if broker_version == "4.9" and not self.items else self.index_count
        content = bytearray(HEADER + self.hash_slots * 4 + self.index_items * 20)
        struct.pack_into(
            ">qqqqii",
            content,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            count,
        )
        for slot, number in self.slots.items():
            struct.pack_into(">i", content, HEADER + slot * 4, number)
        at = HEADER + self.hash_slots * 4 + 20  # items count from 1
        content[at : at + 20 * len(self.items)] = b"".join(self.items)
        return bytes(content)


class IndexService:
    """IndexService.buildIndex, record after record."""

    def __init__(self, hash_slots: int, index_items: int) -> None:
        self.hash_slots = hash_slots
        self.index_items = index_items
        self.files: list[IndexFile] = []

    def build(self, record: Record) -> None:
        file = self._last(record)  # any record makes the file, also one without keys
        if record.offset < file.end_offset:
            return
        for text in record.index_keys():
            self._last(record).put(text, record.offset, record.store_timestamp)

    def _last(self, record: Record) -> IndexFile:
        """The last file, or a new one if there is none or it is full; named by the record that makes it."""
        if self.files and not self.files[-1].full:
            return self.files[-1]
        file = IndexFile(record.offset, self.hash_slots, self.index_items)
        if self.files:
            before = self.files[-1]
            file.name = max(record.offset, before.name + 1)
            if before.end_offset > 0:
                file.begin_offset = file.end_offset = before.end_offset
            if before.end_timestamp > 0:
                file.begin_timestamp = file.end_timestamp = before.end_timestamp
        self.files.append(file)
        return file

    def contents(self, broker_version: str) -> dict[str, bytes]:
        return {f"index/{f.name:017d}": f.to_bytes(broker_version) for f in self.files}
