"""What the files of a store say about settings that nobody named: sizes, batch topics, light queues."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from typing import Final

from rocketmq_reindex.jobs.building.options import read_batch_topics
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.sizes import QUEUES, FileSizes, index_files, index_sizes, queue_files, without_items
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.names import LMQ_PREFIX
from rocketmq_reindex.udfs import files

FILES_ASKED: Final = 1000
"""ConsumeQueue files whose size is looked at"""


def take_sizes(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Return settings with what the files of the store say, and a line on each that was taken from them. Raises InputError."""
    notes = list[str]()
    changes: dict[str, object] = {}
    for name, folder, unit in QUEUES:
        entries = islice(queue_files(files.join(settings.store, folder)), FILES_ASKED)
        found = FileSizes(entries, unit).usual if name not in settings.named else 0
        if found and found != getattr(settings, name):
            changes[name] = found
            if "consumequeue" in settings.only:
                notes.append(f"{folder}: files of {found:,} bytes, taken from the files")
    slots, items, known = _index_sizes(settings)
    changes |= {"hash_slots": slots, "index_items": items}
    if not known:
        notes.append("index: files without an item: their slots and items are not known")
    elif (slots, items) != (settings.hash_slots, settings.index_items):
        notes.append(f"index: {slots:,} slots and {items:,} items a file, taken from the files")
    topics = files.join(settings.store, "config", "topics.json")
    if not settings.batch_topics and settings.rules.batch_queues and files.entry_of(topics).kind == files.FILE:
        try:
            changes["batch_topics"] = read_batch_topics(topics)
        except UsageError:
            notes.append("config/topics.json cannot be read: batch queues are not known")
    names = [entry.name for entry in entries_of(files.join(settings.store, "consumequeue"))]
    if not settings.lmq and any(name.startswith(LMQ_PREFIX) for name in names):
        changes["lmq"] = True
        notes.append("light message queues are there: compared as with --lmq")
    return dataclasses.replace(settings, **changes, sizes_known=known), notes  # type: ignore[arg-type]  # names of settings


def _index_sizes(settings: VerifySettings) -> tuple[int, int, bool]:
    """Returns slots and items of an IndexFile, and whether they are known. What is not named comes from the files."""
    given = settings.named
    usual = settings.hash_slots, settings.index_items
    if {"hash_slots", "index_items"} <= given or "index" not in settings.only:
        return *usual, True
    found = index_files(settings.store)
    if not found:
        return *usual, True
    size = Counter(entry.size for entry in found).most_common(1)[0][0]
    if "hash_slots" in given or "index_items" in given:
        if "hash_slots" in given:
            return settings.hash_slots, max(2, (size - HEADER_SIZE - SLOT_SIZE * settings.hash_slots) // ITEM_SIZE), True
        return max(1, (size - HEADER_SIZE - ITEM_SIZE * settings.index_items) // SLOT_SIZE), settings.index_items, True
    if size == file_size(*usual):
        return *usual, True
    guess = index_sizes([entry for entry in found if entry.size == size])
    if guess:
        return *guess, True
    if without_items(found):
        return *(_any_sizes(size) or usual), False
    raise InputError(f"index: files of {size:,} bytes, with unknown slots: give --hash-slots and --index-items")


def _any_sizes(size: int) -> tuple[int, int] | None:
    """Returns slots and items that a file of this size may have: while it holds no item, any fit."""
    items, rest = divmod(size - HEADER_SIZE - SLOT_SIZE, ITEM_SIZE)
    return (1 + rest // SLOT_SIZE, items) if items >= 2 and rest % SLOT_SIZE == 0 else None
