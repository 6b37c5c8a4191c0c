"""An IndexFile: header, use of its slots, longest chains, time span, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.index_log import ItemTexts, log_beside, tag_part
from rocketmq_reindex.jobs.inspecting.inspected import Inspected, Row, Rows
from rocketmq_reindex.storage_format.checks.index import ITEM_STEP, IndexCheck, check_index, slot_lengths
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.header import ITEM_SIZE
from rocketmq_reindex.storage_format.index.reader import IndexView, guess_sizes, open_index
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.told import Told
from rocketmq_reindex.udfs import files

Hashes = np.ndarray[Any, np.dtype[np.int32]]

_LONGEST: Final = 5
_STEP: Final = 1 << 16


def index(path: str, sizes: tuple[int, int] | None, told: Told) -> Inspected:
    """What an IndexFile holds, with a row for each item; ``told`` is told how far that is.

    Raises InputError where its sizes are not known.
    """
    with files.Reader(path) as reader:
        data = reader.whole(told)
    count = len(data)
    sizes = sizes or guess_sizes(data)
    if sizes is None:
        raise InputError(f"{escape(path)}: its numbers of slots and items are not known: give --hash-slots and --index-items")
    file = open_index(data, *sizes)
    check = check_index(file, told)
    header = file.header
    tags = tag_part(path, sizes)
    told.begin("count", 2 * ITEM_SIZE * check.items)
    lengths = slot_lengths(file, check.items, told)
    used = int(np.count_nonzero(lengths))
    longest = [int(slot) for slot in np.argsort(lengths, kind="stable")[::-1][:_LONGEST] if lengths[slot] > 1]
    chains = _chains(file, check, longest, told)
    told.end()
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
        "findings": [{"code": one.code, "at": one.at, "count": one.count, "text": one.text} for one in check.findings],
    }
    return Inspected(summary, Rows(lambda: _rows(file, check.items, path)))


def _histogram(lengths: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    """Slots by the length of their chain."""
    bounds = (1, 2, 3, 5, 11, 101, 2**62)
    names = ("1", "2", "3-4", "5-10", "11-100", "over 100")
    counts = [int(np.count_nonzero((lengths >= low) & (lengths < high))) for low, high in pairwise(bounds)]
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _chains(file: IndexView, check: IndexCheck, slots: list[int], told: Told) -> list[Hashes]:
    """The hashes of the items in each of a few slots, in one pass over all items."""
    parts: list[list[Hashes]] = [[np.zeros(0, np.int32)] for _ in slots]
    for part in _hashes(file, check.items):
        slot_of = np.where(part >= 0, part % file.slots, -1)
        for slot, found in zip(slots, parts, strict=True):
            found.append(part[slot_of == slot])
        told.moved(ITEM_SIZE * len(part))
    return [np.concatenate(found) for found in parts]


def _chain(slot: int, length: int, hashes: Hashes) -> Row:
    """A slot and, of the hashes in it, the one with the most items: a key that very many messages share."""
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
            of, text = texts.of(row["keyHash"], row["physicalOffset"])
            yield row | {"of": of, "text": text}


def _items(file: IndexView, items: int) -> Iterator[Row]:
    for first in range(1, items + 1, _STEP):
        part = file.read(first, min(_STEP, items + 1 - first))
        times = file.times(part.time_diff).tolist()
        whole = (part.key_hash, part.phy_offset, part.time_diff, part.prev)
        columns = zip(times, *(column.tolist() for column in whole), strict=True)
        for number, (time, key_hash, phy_offset, seconds, prev) in enumerate(columns, first):
            yield {
                "item": number, "keyHash": key_hash, "physicalOffset": phy_offset, "timeDiff": seconds, "time": show_time(time),
                "prevItem": prev,
            }  # fmt: skip
