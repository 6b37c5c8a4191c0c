"""An IndexFile read plainly: what each item's link should be, and the broker's lookup over the bytes as it maps them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.reference import java


@dataclass
class Item:
    key_hash: int
    place: int
    seconds: int
    prev: int


@dataclass
class PlainIndex:
    """``items[n]`` is item n; ``heads`` the slots. ``faults`` are names by item or slot, filled by ``judge``."""

    content: bytes
    slots: int
    places: int
    header: tuple[int, ...] = ()
    heads: list[int] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    used: int = 0
    written: int = 0
    item_faults: dict[int, set[str]] = field(default_factory=dict)
    slot_faults: dict[int, str] = field(default_factory=dict)
    links: dict[int, int | None] = field(default_factory=dict)
    """by item what it should point to: None where its hash leads to no slot"""
    newest: list[int] = field(default_factory=list)
    """by slot its newest item"""

    def __post_init__(self) -> None:
        size = 40 + 4 * self.slots + 20 * self.places
        self.content = self.content[:size].ljust(size, b"\0")
        self.header = struct.unpack_from(">qqqqii", self.content)
        self.heads = [head for (head,) in struct.iter_unpack(">i", self.content[40 : 40 + 4 * self.slots])]
        self.items = [Item(*values) for values in struct.iter_unpack(">iqii", self.content[40 + 4 * self.slots :])]
        self.written = max((n for n in range(1, self.places) if self._raw(n).strip(b"\0")), default=0)
        self.used = min(self.written, max(self.header[5], 1) - 1)

    def _raw(self, number: int) -> bytes:
        at = 40 + 4 * self.slots + 20 * number
        return self.content[at : at + 20]

    def slot(self, number: int) -> int | None:
        key_hash = self.items[number].key_hash
        return key_hash % self.slots if key_hash >= 0 else None

    def after(self, number: int) -> int | None:
        """The item that a lookup goes on with, of those that count."""
        item = self.items[number]
        if item.seconds < 0 or item.prev == number or not 1 <= item.prev <= self.used:
            return None
        return item.prev

    def judge(self) -> None:
        faults: dict[int, set[str]] = {number: set() for number in range(1, self.used + 1)}
        held = [0] * self.slots
        for number in range(1, self.used + 1):
            item, slot = self.items[number], self.slot(number)
            below = self.items[number - 1].place if number > 1 else 0
            self.links[number] = None if slot is None else held[slot]
            faults[number] |= {"index-item-hash"} if slot is None else set()
            faults[number] |= {"index-item-place"} if item.place < below or item.place < 0 else set()
            faults[number] |= {"index-item-time"} if item.seconds < 0 else set()
            if not 0 <= item.prev < number:
                faults[number].add("index-link-range")
            elif slot is not None and item.prev != held[slot]:
                own = item.prev == 0 or self.slot(item.prev) == slot
                faults[number].add("index-link-gap" if own else "index-link-foreign")
            if slot is not None:
                held[slot] = number
        for slot, head in enumerate(self.heads):
            if not 0 <= head <= self.used:
                self.slot_faults[slot] = "index-slot-range"
            elif head != held[slot]:
                foreign = head != 0 and self.slot(head) != slot
                self.slot_faults[slot] = "index-slot-foreign" if foreign else "index-slot-old"
        self.newest = held
        reached = self._reached()
        for number in faults:
            if self._is_in_a_circle(number):
                faults[number].add("index-link-circular")
            if number not in reached and self.slot(number) is not None:
                faults[number].add("index-item-lost")
        self.item_faults = {number: names for number, names in faults.items() if names}

    def _reached(self) -> set[int]:
        found: set[int] = set()
        for slot, head in enumerate(self.heads):
            number = head if 1 <= head <= self.used else None
            while number is not None and number not in found and self.slot(number) == slot:
                found.add(number)
                number = self.after(number)
        return found

    def _is_in_a_circle(self, start: int) -> bool:
        number, met = self.after(start), set[int]()
        while number is not None and number not in met:
            if number == start:
                return True
            met.add(number)
            number = self.after(number)
        return False

    def select(self, key_hash: int) -> tuple[list[int], bool]:
        """(What IndexFile.selectPhyOffset finds of any time, whether it ends by itself).

        Java's own ints, and a map that refuses what lies outside.
        """
        count = self.header[5] if self.header[5] > 0 else 1
        number, found, met = self.heads[key_hash % self.slots], list[int](), set[int]()
        if not 0 < number <= count or count <= 1:
            return found, True
        while True:
            if number in met:
                return found, False
            met.add(number)
            at = java.int32(40 + 4 * self.slots + 20 * number)
            if at < 0 or at + 20 > len(self.content):
                break
            hashed, place, _, prev = struct.unpack_from(">iqii", self.content, at)
            if hashed == key_hash:
                found.append(place)
            if prev <= 0 or prev > count or prev == number:
                break
            number = prev
        return found, True
