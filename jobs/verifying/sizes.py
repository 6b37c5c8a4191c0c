"""What the files of a store say of its settings, where nobody named them: sizes, batch topics, light queues."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from typing import Final

from rocketmq_reindex.jobs.building.options import read_batch_topics
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.sizes import FileSizes, index_files, index_sizes, queue_files, without_items
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.names import LMQ_PREFIX
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.udfs import files

FILES_ASKED: Final = 1000
"""ConsumeQueue files whose size is asked for"""


def take_sizes(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Settings with what the files of the store say, and a line on each that was taken from them. Raises InputError."""
    build, notes = settings.build, list[str]()
    changes: dict[str, object] = {}
    for name, folder, unit in (
        ("cq_file_size", "consumequeue", UNIT_SIZE), ("batch_cq_file_size", "batchconsumequeue", BATCH_UNIT_SIZE)
    ):  # fmt: skip
        entries = islice(queue_files(files.join(build.store, folder)), FILES_ASKED)
        found = FileSizes(entries, unit).usual if name not in settings.given else 0
        if found and found != getattr(build, name):
            changes[name] = found
            notes.append(f"{folder}: files of {found} bytes, taken from the files")
    slots, items, known = _index_sizes(settings)
    changes |= {"hash_slots": slots, "index_items": items}
    if not known:
        notes.append("index: files without an item: their slots and items are not known")
    elif (slots, items) != (build.hash_slots, build.index_items):
        notes.append(f"index: {slots} slots and {items} items a file, taken from the files")
    topics = files.join(build.store, "config", "topics.json")
    if not build.batch_topics and build.broker_version != "4.9" and files.look(topics).kind == files.FILE:
        try:
            changes["batch_topics"] = read_batch_topics(topics)
        except UsageError:
            notes.append("config/topics.json cannot be read: batch queues are not known")
    names = [entry.name for entry in entries_of(files.join(build.store, "consumequeue"))]
    if not build.lmq and any(name.startswith(LMQ_PREFIX) for name in names):
        changes["lmq"] = True
        notes.append("light message queues are there: compared as with --lmq")
    build = dataclasses.replace(build, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(settings, build=build, sizes_known=known), notes


def _index_sizes(settings: VerifySettings) -> tuple[int, int, bool]:
    """Slots and items of an IndexFile, what is not named comes from the files; and whether these say it."""
    build, given = settings.build, settings.given
    usual = build.hash_slots, build.index_items
    if {"hash_slots", "index_items"} <= given or "index" not in settings.only:
        return *usual, True
    found = index_files(build.store)
    if not found:
        return *usual, True
    size = Counter(entry.size for entry in found).most_common(1)[0][0]
    if "hash_slots" in given or "index_items" in given:
        if "hash_slots" in given:
            return build.hash_slots, max(2, (size - HEADER_SIZE - SLOT_SIZE * build.hash_slots) // ITEM_SIZE), True
        return max(1, (size - HEADER_SIZE - ITEM_SIZE * build.index_items) // SLOT_SIZE), build.index_items, True
    if size == file_size(*usual):
        return *usual, True
    guess = index_sizes([entry for entry in found if entry.size == size])
    if guess:
        return *guess, True
    if without_items(found):
        return *(_any_sizes(size) or usual), False
    raise InputError(f"index: files of {size} bytes, with unknown slots: give --hash-slots and --index-items")


def _any_sizes(size: int) -> tuple[int, int] | None:
    """Slots and items that a file of this size may have: while it holds no item, any do."""
    items, rest = divmod(size - HEADER_SIZE - SLOT_SIZE, ITEM_SIZE)
    return (1 + rest // SLOT_SIZE, items) if items >= 2 and rest % SLOT_SIZE == 0 else None
