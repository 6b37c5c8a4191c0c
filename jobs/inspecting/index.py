"""Inspect an IndexFile: header, use of its slots, longest chains, time span, and the keys of its items by the log beside it."""

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.inspecting.options import Inspected, InspectedRows, Row
from rocketmq_reindex.jobs.store import contents, folders, tag_items
from rocketmq_reindex.storage_format.checks.index import ITEM_STEP, IndexCheck, check_index, slot_lengths
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.index.file import IndexView, guess_sizes, open_index
from rocketmq_reindex.storage_format.index.layout import ITEM_SIZE
from rocketmq_reindex.storage_format.layouts import key_hash, tag_hash
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.times import show_time

# -------------------------------------------------------------------------------------------------------------------- index log
# What the log beside an IndexFile says of its items: which key or tag each one stands for.

UNIQUE_KEY: Final = "unique key"
KEY: Final = "key"
TAG: Final = "tag"


class ItemText(NamedTuple):
    """``of`` is UNIQUE_KEY, KEY or TAG; both are None where the log does not say."""

    of: str | None
    text: str | None


@contextlib.contextmanager
def log_beside(path: str) -> Iterator[contents.StoreLog | None]:
    """Yield the log of the store in whose folder ``index`` the file lies; None where there is none."""
    folder = files.join(files.parent(files.parent(path)), "commitlog")
    if files.entry_of(folder).kind != files.FOLDER:
        yield None
        return
    log = contents.StoreLog([folder], folders.Notes(_pass_over))
    try:
        yield log
    finally:
        log.close()


def tag_part(path: str, sizes: tuple[int, int]) -> tag_items.LogStretch | None:
    """Return the part of the log whose records have tag items in this file; None where none are found."""
    with log_beside(path) as log:
        if log is None:
            return None
        pages = files.Pages(path)
        try:
            return tag_items.part_with_tag_items(contents.OpenIndexFile(path, pages, contents.IndexSizes(*sizes)), log)
        finally:
            pages.close()


class ItemTexts:
    """The texts behind items that are asked for in the order of their file."""

    def __init__(self, log: contents.StoreLog | None) -> None:
        self._log = log
        self._phy_offset = -1
        self._left: list[tuple[int, ItemText]] = []

    def of(self, hashed: int, phy_offset: int) -> ItemText:
        """Return the key or tag of the record with this hash that no item before this one stands for."""
        if phy_offset != self._phy_offset:
            self._phy_offset = phy_offset
            message = self._log.message(phy_offset) if self._log is not None and phy_offset >= 0 else ""
            self._left = _texts(message) if isinstance(message, Message) else []
        item = next((text for text in self._left if text[0] == hashed), None)
        if item is None:
            return ItemText(None, None)
        self._left.remove(item)
        return item[1]


def _texts(message: Message) -> list[tuple[int, ItemText]]:
    """Return the items that a broker puts for a record, in its order (``IndexService.buildIndex``)."""
    topic = message.topic
    texts = (
        [] if message.unique_key is None else [(key_hash(topic, message.unique_key), ItemText(UNIQUE_KEY, message.unique_key))]
    )
    texts += [(key_hash(topic, key), ItemText(KEY, key)) for key in message.keys]
    return texts + ([(tag_hash(topic, message.tags), ItemText(TAG, message.tags))] if message.tags else [])


def _pass_over(_text: str) -> None:
    """Takes notes that are none of the file's."""


# ------------------------------------------------------------------------------------------------------------------------ index
# An IndexFile: header, use of its slots, longest chains, time span, and what is wrong.

Hashes = np.ndarray[Any, np.dtype[np.int32]]

_LONGEST: Final = 5
_STEP: Final = 1 << 16


def index(path: str, sizes: tuple[int, int] | None, progress: ProgressListener) -> Inspected:
    """Return what an IndexFile holds, with a row for each item; ``progress`` is told how far that is.

    Raises InputError where its sizes are not known.
    """
    with files.Reader(path) as reader:
        data = reader.whole(progress)
    count = len(data)
    sizes = sizes or guess_sizes(data)
    if sizes is None:
        raise InputError(f"{escape(path)}: its numbers of slots and items are not known: give --hash-slots and --index-items")
    file = open_index(data, *sizes)
    check = check_index(file, progress)
    header = file.header
    tags = tag_part(path, sizes)
    progress.begin("count", 2 * ITEM_SIZE * check.items)
    lengths = slot_lengths(file, check.items, progress)
    used = int(np.count_nonzero(lengths))
    longest = [int(slot) for slot in np.argsort(lengths, kind="stable")[::-1][:_LONGEST] if lengths[slot] > 1]
    chains = _chains(file, check, longest, progress)
    progress.end()
    summary = {
        "bytes": count,
        "slots": file.slots,
        "places": file.items,
        "items": check.items,
        "full": file.sealed,
        "beginTimestamp": header.begin_time,
        "beginTime": show_time(header.begin_time),
        "endTimestamp": header.end_time,
        "endTime": show_time(header.end_time),
        "beginPhyOffset": header.begin_place,
        "endPhyOffset": header.end_place,
        "hashSlotCount": header.slot_count,
        "indexCount": header.index_count,
        "tagItemsFrom": tags and tags.low,
        "tagItemsTo": tags and tags.high,
        "slotsInUse": check.slots_used,
        "slotUse": f"{check.slots_used / file.slots:.1%}",
        "meanChain": round(check.items / used, 2) if used else 0,
        "chains": _histogram(lengths),
        "longestChains": [_chain(slot, int(lengths[slot]), hashes) for slot, hashes in zip(longest, chains, strict=True)],
        "findings": [
            {"code": finding.code, "at": finding.at, "count": finding.count, "text": finding.text} for finding in check.findings
        ],
    }
    return Inspected(summary, InspectedRows(lambda: _rows(file, check.items, path)))


def _histogram(lengths: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    """Return how many slots have a chain of each length."""
    bounds = (1, 2, 3, 5, 11, 101, 2**62)
    names = ("1", "2", "3-4", "5-10", "11-100", "over 100")
    counts = [int(np.count_nonzero((lengths >= low) & (lengths < high))) for low, high in pairwise(bounds)]
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _chains(file: IndexView, check: IndexCheck, slots: list[int], progress: ProgressListener) -> list[Hashes]:
    """Return the hashes of the items in each of a few slots, in one pass over all items."""
    parts: list[list[Hashes]] = [[np.zeros(0, np.int32)] for _ in slots]
    for part in _hashes(file, check.items):
        slot_of = np.where(part >= 0, part % file.slots, -1)
        for slot, hashes in zip(slots, parts, strict=True):
            hashes.append(part[slot_of == slot])
        progress.moved(ITEM_SIZE * len(part))
    return [np.concatenate(hashes) for hashes in parts]


def _chain(slot: int, length: int, hashes: Hashes) -> Row:
    """Return a slot and, of the hashes in it, the one with the most items: a key that very many messages share."""
    values, counts = np.unique(hashes, return_counts=True)
    return {
        "slot": slot,
        "items": length,
        "hashes": len(values),
        "mostFrequentHash": int(values[np.argmax(counts)]) if len(values) else None,
        "itemsOfIt": int(counts.max()) if len(values) else 0,
    }


def _hashes(file: IndexView, items: int) -> Iterator[Hashes]:
    for first in range(1, items + 1, ITEM_STEP):
        yield file.read(first, min(ITEM_STEP, items + 1 - first)).key_hash


def _rows(file: IndexView, items: int, path: str) -> Iterator[Row]:
    with log_beside(path) as log:
        texts = ItemTexts(log)
        for row in _items(file, items):
            kind, text = texts.of(row["keyHash"], row["physicalOffset"])
            yield row | {"of": kind, "text": text}


def _items(file: IndexView, items: int) -> Iterator[Row]:
    for first in range(1, items + 1, _STEP):
        part = file.read(first, min(_STEP, items + 1 - first))
        times = file.times(part.time_diff).tolist()
        whole = (part.key_hash, part.phy_offset, part.time_diff, part.prev)
        columns = zip(times, *(column.tolist() for column in whole), strict=True)
        for number, (time, hashed, phy_offset, seconds, prev) in enumerate(columns, first):
            yield {
                "item": number, "keyHash": hashed, "physicalOffset": phy_offset, "timeDiff": seconds, "time": show_time(time),
                "prevItem": prev,
            }  # fmt: skip
