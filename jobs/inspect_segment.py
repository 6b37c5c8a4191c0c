"""A segment: its records by kind and topic, the time they span, and its damage."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from jobs.inspect_show import Row
from jobs.query_scan import damage, scan_segment
from jobs.query_show import fields
from jobs.store_log import SegmentFile
from jobs.times import show_time
from storage_format import record as r
from storage_format.findings import UnreadableError
from storage_format.message import FLAG_COMPRESSED, Message, read_message
from storage_format.range_scan import RangeScanner, ScanSettings
from storage_format.range_summary import RangeSummary
from udfs import files
from udfs.pages import Pages

_TOPICS: Final = 1000
_TRANSACTIONS: Final = {
    r.TRANSACTION_NONE: "plain",
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}


def segment(path: str, whole: int | None) -> tuple[dict[str, Any], Iterator[Row]]:
    """(summary, a row for each good record). Raises UnreadableError for a name that no segment has."""
    name = os.path.basename(path)
    if not re.fullmatch(r"[0-9]{20}", name):
        raise UnreadableError("its name is not 20 digits, the offset of its first byte")
    size = files.look(path).size
    one = SegmentFile(path, int(name), size)
    scanner = RangeScanner(ScanSettings(want_units=False, want_items=False))
    end = one.start + max(size, whole or _beside(path, size))
    for _ in scan_segment(scanner, one, end):
        pass
    summary = scanner.summary
    return _summary(one, end, summary), (fields(message) for message in _messages(one, summary))


def _beside(path: str, size: int) -> int:
    """The size of a whole segment: that of the first one in the folder, if the file is not it."""
    beside = [entry for entry in files.listing(os.path.dirname(path) or ".") if re.fullmatch(r"[0-9]{20}", entry.name)]
    return beside[0].size if beside else size


def _messages(one: SegmentFile, summary: RangeSummary) -> Iterator[Message]:
    """The records that the scan found good, one after another."""
    stop = summary.tail if summary.tail >= 0 else summary.end
    holes = {offset: length for offset, length, _ in summary.holes}
    pages = Pages(one.path)
    try:
        place = one.start
        while place < stop:
            if place in holes:
                place += holes[place]
                continue
            low = place - one.start
            found = read_message(lambda at, count, low=low: pages.read(low + at, count), place, pages.size - low)  # type: ignore[misc]
            if not isinstance(found, Message):
                return
            yield found
            place += found.size
    finally:
        pages.close()


def _summary(one: SegmentFile, end: int, scanned: RangeSummary) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    topics: dict[str, list[int]] = {}
    used = body = 0
    for message in _messages(one, scanned):
        kinds[_TRANSACTIONS[message.sys_flag & r.FLAG_TRANSACTION_MASK]] += 1
        kinds["V2"] += message.version == 2
        kinds["compressed"] += bool(message.sys_flag & FLAG_COMPRESSED)
        kinds["inner batch"] += bool(message.sys_flag & r.FLAG_INNER_BATCH)
        kinds["IPv6"] += bool(message.sys_flag & (r.FLAG_BORN_HOST_V6 | r.FLAG_STORE_HOST_V6))
        kinds["with keys"] += bool(message.keys or message.unique_key)
        counts = topics.setdefault(message.topic, [0, 0, message.store_time, message.store_time])
        counts[0] += 1
        counts[1] += message.size
        counts[2], counts[3] = min(counts[2], message.store_time), max(counts[3], message.store_time)
        used += message.size
        body += message.body_size
    ordered = sorted(topics.items(), key=lambda item: (-item[1][1], item[0]))
    broken = damage(scanned)
    return {
        "bytes": one.size,
        "firstOffset": one.start,
        "wholeSegment": end - one.start,
        "records": sum(counts[0] for counts in topics.values()),
        "recordBytes": used,
        "bodyBytes": body,
        "kinds": {name: count for name, count in kinds.items() if count},
        "firstStoreTime": show_time(min(counts[2] for counts in topics.values())) if topics else None,
        "lastStoreTime": show_time(max(counts[3] for counts in topics.values())) if topics else None,
        "endsWith": _end(scanned),
        "damagedBytes": sum(length for _, length, _ in broken),
        "topicCount": len(topics),
        "topics": [
            {
                "topic": topic,
                "records": count,
                "bytes": size,
                "firstStoreTime": show_time(low),
                "lastStoreTime": show_time(high),
            }
            for topic, (count, size, low, high) in ordered[:_TOPICS]
        ],
        "damage": [{"offset": offset, "length": length, "reason": why} for offset, length, why in broken],
    }


def _end(scanned: RangeSummary) -> str:
    if scanned.tail < 0:
        return "a filler, or exactly full"
    if scanned.last_nonzero < scanned.tail:
        return f"zeros from offset {scanned.tail} on"
    return f"no record from offset {scanned.tail} on"
