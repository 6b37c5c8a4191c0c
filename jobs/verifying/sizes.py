"""What the files of a store say of its settings, where nobody named them: sizes, batch topics, light queues."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from jobs.building.options import read_batch_topics
from jobs.verifying.settings import VerifySettings
from storage_format.batch_queue import BATCH_UNIT_SIZE
from storage_format.consume_queue import UNIT_SIZE
from storage_format.errors import InputError, UsageError
from storage_format.file_names import first_byte, is_index_file
from storage_format.index_file import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, file_size
from storage_format.index_reader import guess_sizes
from storage_format.names import LMQ_PREFIX
from udfs import files

FILES_ASKED: Final = 1000
"""ConsumeQueue files whose size is asked for"""
INDEX_ASKED: Final = 4


def entries_of(folder: str) -> list[files.Entry]:
    """The entries of a folder, none where it is not there."""
    return files.listing(folder) if files.look(folder).kind == files.FOLDER else []


def take_sizes(settings: VerifySettings) -> tuple[VerifySettings, list[str]]:
    """Settings with what the files of the store say, and a line on each that was taken from them. Raises InputError."""
    build, notes = settings.build, list[str]()
    changes: dict[str, object] = {}
    for name, folder, unit in (
        ("cq_file_size", "consumequeue", UNIT_SIZE), ("batch_cq_file_size", "batchconsumequeue", BATCH_UNIT_SIZE)
    ):  # fmt: skip
        found = _usual_size(files.join(build.store, folder), unit) if name not in settings.given else 0
        if found and found != getattr(build, name):
            changes[name] = found
            notes.append(f"{folder}: files of {found} bytes, taken from the files")
    slots, items = _index_sizes(settings)
    if (slots, items) != (build.hash_slots, build.index_items):
        changes |= {"hash_slots": slots, "index_items": items}
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
    return dataclasses.replace(settings, build=dataclasses.replace(build, **changes)), notes  # type: ignore[arg-type]


def _queue_files(folder: str) -> Iterator[files.Entry]:
    for topic in entries_of(folder):
        for queue in entries_of(topic.path):
            yield from (entry for entry in entries_of(queue.path) if entry.kind == files.FILE)


def _usual_size(folder: str, unit: int) -> int:
    """The size that most files have, of those that fit the files' own names; 0 for none."""
    sizes, starts = Counter[int](), list[int]()
    for number, entry in enumerate(_queue_files(folder)):
        if number == FILES_ASKED:
            break
        if entry.size and entry.size % unit == 0:
            sizes[entry.size] += 1
        start = first_byte(entry.name)
        if start is not None:
            starts.append(start)
    step = int(np.gcd.reduce(np.array(starts, np.int64))) if starts else 0
    fitting = {size: count for size, count in sizes.items() if step % size == 0} or sizes
    return max(fitting, key=lambda size: (fitting[size], size), default=0)


def _index_sizes(settings: VerifySettings) -> tuple[int, int]:
    """Slots and items of an IndexFile; what is not named comes from the files."""
    build, given = settings.build, settings.given
    if {"hash_slots", "index_items"} <= given or "index" not in settings.only:
        return build.hash_slots, build.index_items
    found = [e for e in entries_of(files.join(build.store, "index")) if e.kind == files.FILE and is_index_file(e.name)]
    if not found:
        return build.hash_slots, build.index_items
    size = Counter(entry.size for entry in found).most_common(1)[0][0]
    if "hash_slots" in given or "index_items" in given:
        if "hash_slots" in given:
            return build.hash_slots, max(2, (size - HEADER_SIZE - SLOT_SIZE * build.hash_slots) // ITEM_SIZE)
        return max(1, (size - HEADER_SIZE - ITEM_SIZE * build.index_items) // SLOT_SIZE), build.index_items
    if size == file_size(build.hash_slots, build.index_items):
        return build.hash_slots, build.index_items
    votes = Counter[tuple[int, int]]()
    for entry in [entry for entry in found if entry.size == size][:INDEX_ASKED]:
        with files.Reader(entry.path) as reader:
            data = reader.view(0, size)
            guess = guess_sizes(data if data is not None else reader.read(0, size))
        if guess:
            votes[guess] += 1
    if not votes:
        raise InputError(f"index: files of {size} bytes, with unknown slots: give --hash-slots and --index-items")
    return votes.most_common(1)[0][0]
