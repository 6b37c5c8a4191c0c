"""The database of RocksDB in which a broker keeps ConsumeQueues: its check point, its queues, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rocketmq_reindex.jobs.inspecting.options import Inspected, InspectedRows, Row
from rocketmq_reindex.jobs.store.config_databases import read_folder
from rocketmq_reindex.storage_format.config_tables import Decoded, Part
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue.rocksdb import QueueEnd, QueueName
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.storage_format.text.java_string import java_text
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX
from rocketmq_reindex.udfs.queue_database import QueueDatabase

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
    return Inspected({**summary, "findings": findings}, InspectedRows(lambda: _rows(folder)))


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


def _rows(folder: str) -> Iterator[Row]:
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
