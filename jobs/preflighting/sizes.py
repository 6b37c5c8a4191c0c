"""The sizes of a store's files: as they were given, or else as the files themselves show."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.jobs.preflighting.mapping import Maps
from rocketmq_reindex.jobs.preflighting.settings import BrokerSettings
from rocketmq_reindex.storage_format.file_names import first_byte, is_index_file
from rocketmq_reindex.storage_format.index.header import file_size
from rocketmq_reindex.storage_format.index.reader import guess_sizes
from rocketmq_reindex.storage_format.index.sizes import DEFAULT_ITEMS, DEFAULT_SLOTS
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.start.listing import FILE, Listed, Listing
from rocketmq_reindex.storage_format.start.loading import FileSizes
from rocketmq_reindex.udfs.files import MAPPED_MAX

SEGMENT: Final = 1 << 30
UNITS: Final = 300_000
_INDEX_ASKED: Final = 4


@dataclass(frozen=True)
class StoreSizes:
    """All sizes, and notes about those that were taken from the files."""

    files: FileSizes
    hash_slots: int
    index_items: int
    notes: tuple[str, ...]

    @property
    def index_file(self) -> int:
        """The bytes of an IndexFile."""
        return file_size(self.hash_slots, self.index_items)


def sizes_of(listing: Listing, broker: BrokerSettings, store: str, maps: Maps) -> StoreSizes:
    """The sizes that the broker is taken to have."""
    notes = list[str]()

    def size(what: str, given: int | None, entries: Iterable[Listed], unit: int, default: int) -> int:
        if given is not None:
            return given
        found = usual_size(entries, unit)
        if found not in (0, default):
            notes.append(f"{what}: files of {found:,} bytes, taken from the files")
        return found or default

    def of_queues(batch: bool) -> Iterable[Listed]:
        return (file for queue in listing.queues if queue.batch == batch for file in queue.files or ())

    files = FileSizes(
        size("commitlog", broker.segment_size, listing.segments, 1, SEGMENT),
        size("consumequeue", broker.cq_file_size, of_queues(False), UNIT_SIZE, UNITS * UNIT_SIZE),
        size("batchconsumequeue", broker.batch_cq_file_size, of_queues(True), BATCH_UNIT_SIZE, UNITS * BATCH_UNIT_SIZE),
        broker.timer_log_size,
    )
    slots, items = broker.hash_slots, broker.index_items
    if slots is None or items is None:
        slots, items = _index_sizes(listing.indexes, lambda entry: maps.get(os.path.join(store, entry.path), entry.size))
        if (slots, items) != (DEFAULT_SLOTS, DEFAULT_ITEMS):
            notes.append(f"index: {counted(slots, 'slot')} and {counted(items, 'item')} a file, taken from the files")
    return StoreSizes(files, slots, items, tuple(notes))


def usual_size(entries: Iterable[Listed], unit: int) -> int:
    """The size that most files have, of those that fit the names; 0 for none."""
    counts, starts = Counter[int](), set[int]()
    for entry in entries:
        start = first_byte(entry.name)
        if entry.kind == FILE and 0 < entry.size <= MAPPED_MAX and entry.size % unit == 0 and start is not None:
            counts[entry.size] += 1
            starts.add(start)
    fitting = {size: count for size, count in counts.items() if all(start % size == 0 for start in starts)} or counts
    return max(fitting, key=lambda size: (fitting[size], size), default=0)


def _index_sizes(entries: Sequence[Listed], bytes_of: Callable[[Listed], object]) -> tuple[int, int]:
    """(slots, items) as a few files of one size show; the defaults where they do not."""
    found = [entry for entry in entries if entry.kind == FILE and 0 < entry.size <= MAPPED_MAX and is_index_file(entry.name)]
    for entry in found[:_INDEX_ASKED]:
        guess = guess_sizes(bytes_of(entry))  # type: ignore[arg-type]  # an array, which the caller maps
        if guess is not None:
            return guess
    return DEFAULT_SLOTS, DEFAULT_ITEMS
