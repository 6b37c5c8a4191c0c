"""Guess slots and items of an IndexFile from a few reads, where its settings are not known (``reader.guess_sizes`` reads it
all)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketmq_reindex.storage_format.index.header import (
    HEADER_SIZE,
    ITEM_LAYOUT,
    ITEM_SIZE,
    SLOT_LAYOUT,
    SLOT_SIZE,
    IndexHeader,
    file_size,
)

DEFAULT_SLOTS: Final = 5_000_000
"""``maxHashSlotNum``"""
DEFAULT_ITEMS: Final = 20_000_000
"""``maxIndexNum``"""
_LOOKED_AT: Final = 64


def quick_sizes(read: Callable[[int, int], bytes], size: int) -> tuple[int, int] | None:
    """(slots, items) of a file of the default size, or of one that is full or sealed; else None.

    ``read(at, count)`` gives bytes of the file, ``size`` is its bytes.
    """
    if size == file_size(DEFAULT_SLOTS, DEFAULT_ITEMS):
        return DEFAULT_SLOTS, DEFAULT_ITEMS
    raw = read(0, HEADER_SIZE)
    if len(raw) < HEADER_SIZE:
        return None
    items = IndexHeader.from_bytes(raw).index_count
    slots, rest = divmod(size - HEADER_SIZE - ITEM_SIZE * items, SLOT_SIZE)
    if items < 2 or slots < 1 or rest or not first_items_fit(read, slots, items):
        return None
    return slots, items


def first_items_fit(read: Callable[[int, int], bytes], slots: int, items: int) -> bool:
    """Whether a file may have these sizes: its first items link to those before them, and their slots hold these or newer
    ones."""
    start = HEADER_SIZE + SLOT_SIZE * slots
    raw = read(start, ITEM_SIZE * min(items, _LOOKED_AT))
    table = list(ITEM_LAYOUT.iter_unpack(raw[: len(raw) - len(raw) % ITEM_SIZE]))
    if len(table) < 2 or any(table[0]) or not any(table[1]):
        return False
    newest: dict[int, int] = {}
    for number, (key_hash, phy_offset, seconds, prev) in enumerate(table[1:], 1):
        if not (key_hash or phy_offset or seconds or prev):
            break
        slot = key_hash % slots
        if key_hash < 0 or phy_offset < 0 or newest.get(slot, 0) != prev:
            return False
        newest[slot] = number
    heads = {slot: SLOT_LAYOUT.unpack(read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE))[0] for slot in newest}
    return all(number <= heads[slot] < items for slot, number in newest.items())
