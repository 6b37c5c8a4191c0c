"""Inspect a ConsumeQueue file, a file of timer messages, or the database of RocksDB in which a broker keeps ConsumeQueues."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.jobs.inspecting.options import Inspected, InspectedRows, Row
from rocketmq_reindex.jobs.inspecting.segment import OPTION
from rocketmq_reindex.jobs.store.config_databases import read_folder
from rocketmq_reindex.storage_format.delay import timer_layout
from rocketmq_reindex.storage_format.errors import UnreadableError
from rocketmq_reindex.storage_format.layouts import INT64_MAX, first_byte, java_text
from rocketmq_reindex.storage_format.queue.consume_queue import BAD, EMPTY, HAS_UNIT, PRE_BLANK, QueueFile, read_queue_file
from rocketmq_reindex.storage_format.queue.extended import address_of, read_ext_file
from rocketmq_reindex.storage_format.queue.rocksdb import QueueEnd, QueueName
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, BATCH_UNIT_SIZE
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, Decoded, Part
from rocketmq_reindex.udfs.queue_database import QueueDatabase
from rocketmq_reindex.udfs.times import show_time

# ------------------------------------------------------------------------------------------------------------------------ queue
# A ConsumeQueue file, or a batch one: first and last unit, blanks, order.

_KINDS = {EMPTY: "empty", HAS_UNIT: "unit", PRE_BLANK: "pre-blank", BAD: "no unit"}


def _start(path: str, first: int | None) -> int:
    """Return the first logical byte, as it is given or by the name. Raises UnreadableError."""
    start = first_byte(files.base(path)) if first is None else first
    if start is None:
        raise UnreadableError(f"its name is not the first logical byte of the file, in 20 digits: give it as {OPTION}")
    return start


def _unit(file: QueueFile, slot: int) -> Row | None:
    if slot < 0:
        return None
    phy_offset, size, tags = file.unit(slot)
    return {"offset": file.position + slot, "physicalOffset": phy_offset, "size": size, "tagsCode": tags}


def queue(path: str, first: int | None = None) -> Inspected:
    """Return what a ConsumeQueue file holds, with a row for each slot up to the last one in use."""
    start = _start(path, first)
    with files.Reader(path) as reader:
        data = reader.whole()
    file = read_queue_file(data, start)
    summary = {
        "bytes": len(data),
        "firstLogicalByte": start,
        "places": len(file.kind),
        "preBlank": file.pre_blank,
        "units": file.units,
        "repeatedUnits": file.repeats,
        "emptyAtTheEnd": len(file.kind) - file.used,
        "present": file.present,
        "first": _unit(file, file.first_unit),
        "last": _unit(file, file.last_unit),
        "findings": [
            {"code": finding.code, "at": finding.at, "count": finding.count, "text": finding.text} for finding in file.findings
        ],
    }
    return Inspected(summary, InspectedRows(lambda: _rows(file)))


def _rows(file: QueueFile) -> Iterator[Row]:
    for slot in range(file.used):
        phy_offset, size, tags = file.unit(slot)
        kind = _KINDS[int(file.kind[slot])]
        yield {"offset": file.position + slot, "kind": kind, "physicalOffset": phy_offset, "size": size, "tagsCode": tags}


def ext_queue(path: str, first: int | None = None) -> Inspected:
    """Return what a file of consumequeue_ext holds, with a row for each unit."""
    start = _start(path, first)
    with files.Reader(path) as reader:
        data = reader.whole()
    file = read_ext_file(data, start)

    def row(number: int) -> Row:
        at, time = start + int(file.at[number]), int(file.store_time[number])
        return {
            "address": int(address_of(np.int64(at))),
            "logicalByte": at,
            "size": int(file.size[number]),
            "tagsCode": int(file.tags_code[number]),
            "msgStoreTime": time,
            "storeTime": show_time(time),
            "bitMap": file.bit_map(data, number).hex(),
        }

    count = len(file.at)
    summary = {
        "bytes": len(data),
        "firstLogicalByte": start,
        "units": count,
        "used": file.used,
        "goesOnInTheNextFile": file.is_full,
        "unitsWithBitMap": int(np.count_nonzero(file.bit_map_size > 0)),
        "first": row(0) if count else None,
        "last": row(count - 1) if count else None,
        "findings": [
            {"code": finding.code, "at": finding.at, "count": finding.count, "text": finding.text} for finding in file.findings
        ],
    }
    return Inspected(summary, InspectedRows(lambda: map(row, range(count))))


def batch_queue(path: str, first: int | None = None) -> Inspected:
    """Return what a ConsumeQueue file holds, with a row for each slot up to the last one in use."""
    start = _start(path, first)
    with files.Reader(path) as reader:
        data = reader.whole()
    units = data[: len(data) - len(data) % BATCH_UNIT_SIZE].view(BATCH_LAYOUT.dtype)
    slots, used = len(units), int(np.max(np.flatnonzero((units["size"] != 0) | (units["phy_offset"] != 0)), initial=-1)) + 1
    # Most of a queue's last file is empty.
    unpacked = BATCH_LAYOUT.iter_unpack(units[:used].tobytes())
    rows = [_batch_row(start // BATCH_UNIT_SIZE + slot, *fields) for slot, fields in enumerate(unpacked)]
    filled = [row for row in rows[:used] if row["size"] > 0]
    backwards = [b["unit"] for a, b in itertools.pairwise(filled) if b["physicalOffset"] < a["physicalOffset"]]
    unsorted = [b["unit"] for a, b in itertools.pairwise(filled) if b["baseOffset"] < a["baseOffset"] + a["messages"]]
    gaps = [b["unit"] for a, b in itertools.pairwise(filled) if b["baseOffset"] > a["baseOffset"] + a["messages"]]
    faults = [
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
        "places": slots,
        "units": len(filled),
        "messages": sum(max(row["messages"], 0) for row in filled),
        "emptyAtTheEnd": slots - used,
        "first": filled[0] if filled else None,
        "last": filled[-1] if filled else None,
        "findings": [{"code": "batch", "at": at[0], "count": len(at), "text": text} for text, at in faults if at],
    }
    return Inspected(summary, InspectedRows(lambda: iter(rows[:used])))


def _batch_row(
    unit: int, phy_offset: int, size: int, tags: int, time: int, base: int, count: int, compacted: int, _reserved: int
) -> Row:
    return {
        "unit": unit, "baseOffset": base, "messages": count, "physicalOffset": phy_offset, "size": size, "tagsCode": tags,
        "storeTimestamp": time, "storeTime": show_time(time), "compactedOffset": compacted,
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------- timers
# The files of timer messages: ``config/timercheck``, a file of ``timerlog``, ``timerwheel``.

_CHECK_MAX: Final = 1 << 20
_WHEEL_MAX: Final = 4 * timer_layout.WHEEL_SIZE
"""bytes that are read at most; a broker takes WHEEL_SIZE alone"""
_MAGIC: Final = struct.Struct(">i")


def timer_check(path: str) -> Inspected:
    """Return what ``timercheck`` holds, with a row for each field."""
    data = files.read_bytes(path, _CHECK_MAX)
    check = timer_layout.TimerCheckpoint.from_bytes(data)
    fields = dict(zip(timer_layout.CHECK_LAYOUT.names, astuple(check), strict=True))
    summary = {"bytes": len(data), "lastReadTime": show_time(check.read_time) if check.read_time else None, **fields}
    return Inspected(summary, InspectedRows(lambda: iter([{"field": name, "value": value} for name, value in fields.items()])))


def timer_log(path: str) -> Inspected:
    """Return what a file of ``timerlog`` holds, with a row for each unit in front of the first that is none."""
    with files.Reader(path) as reader:
        data = reader.whole()
    units = data[: len(data) - len(data) % timer_layout.LOG_UNIT.itemsize].view(timer_layout.LOG_UNIT)
    count = timer_layout.leading_units(units)
    end, used = count * timer_layout.LOG_UNIT.itemsize, units[:count]
    # The blank unit may be cut off: a file closes where no whole one fits.
    closed = (
        end + timer_layout.BLANK_SIZE <= len(data)
        and _MAGIC.unpack_from(data.data, end + timer_layout.LOG_LAYOUT.at["magic"])[0] == timer_layout.MAGIC_BLANK
    )
    has_more = not closed and bool(data[end:].any())
    summary = {
        "bytes": len(data),
        "units": count,
        "rolled": int(np.count_nonzero(used["magic"] & timer_layout.MAGIC_ROLL)),
        "deleting": int(np.count_nonzero(used["magic"] & timer_layout.MAGIC_DELETE)),
        "end": end,
        "closed": closed,
        "first": _timer_unit(used, 0) if count else None,
        "last": _timer_unit(used, count - 1) if count else None,
        "findings": [{"code": "timer", "at": end, "count": 1, "text": "bytes that are no unit"}] if has_more else [],
    }
    return Inspected(summary, InspectedRows(lambda: (_timer_unit(used, number) for number in range(count))))


def timer_wheel(path: str) -> Inspected:
    """Return what ``timerwheel`` holds, with a row for each slot in use, by its time in units of ``timerPrecisionMs``."""
    data = files.read_bytes(path, _WHEEL_MAX)
    slots = np.frombuffer(data[: len(data) - len(data) % timer_layout.SLOT.itemsize], timer_layout.SLOT)
    used = slots[slots["time"] != 0]
    used = used[np.argsort(used["time"], kind="stable")]
    summary: dict[str, Any] = {
        "bytes": len(data),
        "slots": len(slots),
        "used": len(used),
        "messages": int(used["count"].sum(dtype=np.int64)),
        "first": _slot(used, 0) if len(used) else None,
        "last": _slot(used, len(used) - 1) if len(used) else None,
        "findings": [] if len(data) == timer_layout.WHEEL_SIZE
        else [{"code": "timer", "at": len(data), "count": 1, "text": f"a broker takes {timer_layout.WHEEL_SIZE} bytes alone"}],
    }  # fmt: skip
    return Inspected(summary, InspectedRows(lambda: _slots(used)))


def _timer_unit(units: npt.NDArray[np.void], number: int) -> Row:
    unit = units[number]
    time = int(unit["written"]) + int(unit["delayed"])
    return {
        "position": number * timer_layout.LOG_UNIT.itemsize, "previous": int(unit["prev_pos"]), "magic": int(unit["magic"]),
        "time": time, "slotTime": show_time(time), "written": int(unit["written"]), "physicalOffset": int(unit["phy_offset"]),
        "size": int(unit["record_size"]), "topicHash": int(unit["topic_hash"]),
    }  # fmt: skip


def _slots(slots: npt.NDArray[np.void]) -> Iterator[Row]:
    return (_slot(slots, number) for number in range(len(slots)))


def _slot(slots: npt.NDArray[np.void], number: int) -> Row:
    slot = slots[number]
    return {
        "time": int(slot["time"]),
        "first": int(slot["first_pos"]),
        "last": int(slot["last_pos"]),
        "num": int(slot["count"]),
    }


_NO_CHECK_POINT = "no check point: a broker takes it for 0, and begins to dispatch behind the first record of the log"
_FINDINGS = {
    "end-missing": "queues with units, of which the database does not say where they end: a broker serves none of these",
    "end-without-unit": "queues whose last unit is not there, or leads elsewhere than the database says of the end",
    "units-behind-end": "queues with units behind their end: a broker serves none of these, and new ones take their places",
    "gap": "queues with an offset between their units that has none: no consumer gets past it",
}
"""What may be wrong in a queue."""


class _Queue(NamedTuple):
    """The units of one queue: how many, the first and the last queue offset, how many offsets between have none."""

    name: QueueName
    units: int
    first: int
    last: int
    missing: int


def database(folder: str) -> Inspected:
    """Return what a database holds: a row for each queue, or each topic, group and offset of ``config/``'s. Raises InputError.

    It reads all units, and none of the log.
    """
    if (tables := read_folder(folder)) is not None:
        return _config(tables)
    found: dict[str, tuple[int, str]] = {}
    summary: dict[str, Any] = {"checkPoint": None, "topics": 0, "queues": 0, "lightQueues": 0, "units": 0}
    opened = QueueDatabase(folder)
    try:
        summary["checkPoint"] = opened.dispatched()
        topic = None
        for row, wrong in _looked_at(opened):
            # The queues of a topic stand together.
            summary["topics"] += row["units"] > 0 and row["topic"] != topic
            topic = row["topic"]
            summary["queues"] += 1
            summary["lightQueues"] += row["topic"].startswith(LMQ_PREFIX)
            summary["units"] += row["units"]
            for code in wrong:
                count, first = found.get(code, (0, f"{row['topic']}/{row['queueId']}"))
                found[code] = count + 1, first
    finally:
        opened.close()
    findings = [] if summary["checkPoint"] is not None else [{"code": "no-check-point", "count": 1, "text": _NO_CHECK_POINT}]
    for code, text in _FINDINGS.items():
        if code in found:
            count, first = found[code]
            findings.append({"code": code, "count": count, "text": f"{text}: {counted(count, 'queue')}, such as {first}"})
    return Inspected({**summary, "findings": findings}, InspectedRows(lambda: _database_rows(folder)))


def _config(tables: Mapping[Part, Decoded]) -> Inspected:
    """Return what databases of topics, groups and consumer offsets hold, as the JSON of the files of these."""
    summary: dict[str, Any] = {part.folder: len(decoded.said[part.table]) for part, decoded in tables.items()}
    summary["dataVersions"] = {part.folder: decoded.said["dataVersion"] for part, decoded in tables.items()}
    broken = [name for decoded in tables.values() for name in decoded.broken]
    text = f"entries that cannot be read: {counted(len(broken), 'entry', 'entries')}, such as {''.join(broken[:1])}"
    summary["findings"] = [{"code": "unreadable-entry", "count": len(broken), "text": text}] if broken else []
    return Inspected(summary, InspectedRows(lambda: _entries(tables)))


def _entries(tables: Mapping[Part, Decoded]) -> Iterator[Row]:
    for decoded in tables.values():
        for table, entries in decoded.said.items():
            if table != "dataVersion":
                yield from ({"table": table, "name": name, "entry": entry} for name, entry in entries.items())


def _database_rows(folder: str) -> Iterator[Row]:
    opened = QueueDatabase(folder)
    try:
        for row, _ in _looked_at(opened):
            yield row
    finally:
        opened.close()


def _looked_at(opened: QueueDatabase) -> Iterator[tuple[Row, list[str]]]:
    """Yield each queue that has a unit, or an end, as a row, with what is wrong in it."""
    for name in opened.queues_with_units():
        yield _row(opened, _read(opened, name))
    for end in opened.ends():
        if end.is_max and opened.first(end.queue) is None:
            yield _row(opened, _Queue(end.queue, 0, -1, -1, 0))


def _read(opened: QueueDatabase, name: QueueName) -> _Queue:
    units, first, last = 0, -1, -1
    for offsets, _ in opened.units(name, 0, INT64_MAX):
        first = int(offsets[0]) if first < 0 else first
        last = int(offsets[-1])
        units += len(offsets)
    return _Queue(name, units, first, last, last - first + 1 - units if units else 0)


def _row(opened: QueueDatabase, queue: _Queue) -> tuple[Row, list[str]]:
    end = opened.last(queue.name)
    row = {
        "topic": java_text(queue.name.topic), "queueId": queue.name.queue_id, "units": queue.units, "firstOffset": queue.first,
        "lastOffset": queue.last, "missing": queue.missing, "end": None if end is None else end.queue_offset,
        "endPhyOffset": None if end is None else end.phy_offset,
    }  # fmt: skip
    wrong = ["gap"] if queue.missing else []
    if end is None:
        return row, [*wrong, "end-missing"]
    wrong += ["units-behind-end"] if queue.last > end.queue_offset else []
    return row, wrong if _has_unit(opened, end) else [*wrong, "end-without-unit"]


def _has_unit(opened: QueueDatabase, end: QueueEnd) -> bool:
    """Return whether the unit is there that an end names; a queue that had none yet ends at -1."""
    value = opened.value(end.queue, end.queue_offset)
    return end.queue_offset < 0 or (value is not None and value[:8] == end.phy_offset.to_bytes(8, "big", signed=True))
