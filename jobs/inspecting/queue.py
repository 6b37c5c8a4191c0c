"""A ConsumeQueue file, or a batch one: first and last unit, blanks, order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.first_offset import OPTION
from rocketmq_reindex.jobs.inspecting.inspected import Inspected, Row, Rows
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.findings import UnreadableError
from rocketmq_reindex.storage_format.queue.reader import BAD, EMPTY, PRE_BLANK, UNIT, QueueFile, read_queue_file
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, BATCH_UNIT_SIZE
from rocketmq_reindex.udfs import files

_KINDS = {EMPTY: "empty", UNIT: "unit", PRE_BLANK: "pre-blank", BAD: "no unit"}


def _start(path: str, given: int | None) -> int:
    """The first logical byte, as it is given or by the name. Raises UnreadableError."""
    start = first_byte(files.base(path)) if given is None else given
    if start is None:
        raise UnreadableError(f"its name is not the first logical byte of the file, in 20 digits: give it as {OPTION}")
    return start


def _unit(file: QueueFile, slot: int) -> Row | None:
    if slot < 0:
        return None
    phy_offset, size, tags = file.unit(slot)
    return {"offset": file.position + slot, "physicalOffset": phy_offset, "size": size, "tagsCode": tags}


def queue(path: str, first: int | None = None) -> Inspected:
    """What a ConsumeQueue file holds, with a row for each slot up to the last one in use."""
    start = _start(path, first)
    with files.Reader(path) as reader:
        data = reader.whole()
    file = read_queue_file(data, start)
    summary = {
        "bytes": len(data),
        "firstLogicalByte": start,
        "slots": len(file.kind),
        "preBlank": file.pre_blank,
        "units": file.units,
        "repeatedUnits": file.repeats,
        "emptyAtTheEnd": len(file.kind) - file.used,
        "present": file.present,
        "first": _unit(file, file.first_unit),
        "last": _unit(file, file.last_unit),
        "findings": [{"code": one.code, "at": one.at, "count": one.count, "text": one.text} for one in file.findings],
    }
    return Inspected(summary, Rows(lambda: _rows(file)))


def _rows(file: QueueFile) -> Iterator[Row]:
    for slot in range(file.used):
        phy_offset, size, tags = file.unit(slot)
        kind = _KINDS[int(file.kind[slot])]
        yield {"offset": file.position + slot, "kind": kind, "physicalOffset": phy_offset, "size": size, "tagsCode": tags}


def batch_queue(path: str, first: int | None = None) -> Inspected:
    """What a ConsumeQueue file holds, with a row for each slot up to the last one in use."""
    start = _start(path, first)
    with files.Reader(path) as reader:
        data = reader.whole()
    units = data[: len(data) - len(data) % BATCH_UNIT_SIZE].view(BATCH_LAYOUT.dtype)
    slots, used = len(units), int(np.max(np.flatnonzero((units["size"] != 0) | (units["phy_offset"] != 0)), initial=-1)) + 1
    # Most of a queue's last file is empty.
    some = BATCH_LAYOUT.iter_unpack(units[:used].tobytes())
    rows = [_batch_row(start // BATCH_UNIT_SIZE + slot, *fields) for slot, fields in enumerate(some)]
    filled = [row for row in rows[:used] if row["size"] > 0]
    backwards = [b["unit"] for a, b in itertools.pairwise(filled) if b["physicalOffset"] < a["physicalOffset"]]
    unsorted = [b["unit"] for a, b in itertools.pairwise(filled) if b["baseOffset"] < a["baseOffset"] + a["messages"]]
    gaps = [b["unit"] for a, b in itertools.pairwise(filled) if b["baseOffset"] > a["baseOffset"] + a["messages"]]
    found = [
        ("zeros where a unit should be, before a later one", [row["unit"] for row in rows[:used] if row["size"] <= 0]),
        ("unit that lies before the one before it", backwards),
        ("offsets that overlap or go back", unsorted),
        ("offsets left out", gaps),
        ("unit without a message", [row["unit"] for row in filled if row["messages"] < 1]),
        ("file size is no multiple of a unit", [slots] if len(data) % BATCH_UNIT_SIZE else []),
    ]
    summary = {
        "bytes": len(data),
        "firstLogicalByte": start,
        "slots": slots,
        "units": len(filled),
        "messages": sum(max(row["messages"], 0) for row in filled),
        "emptyAtTheEnd": slots - used,
        "first": filled[0] if filled else None,
        "last": filled[-1] if filled else None,
        "findings": [{"code": "batch", "at": at[0], "count": len(at), "text": text} for text, at in found if at],
    }
    return Inspected(summary, Rows(lambda: iter(rows[:used])))


def _batch_row(
    unit: int, phy_offset: int, size: int, tags: int, time: int, base: int, count: int, compacted: int, _reserved: int
) -> Row:
    return {
        "unit": unit, "baseOffset": base, "messages": count, "physicalOffset": phy_offset, "size": size, "tagsCode": tags,
        "storeTimestamp": time, "storeTime": show_time(time), "compactedOffset": compacted,
    }  # fmt: skip
