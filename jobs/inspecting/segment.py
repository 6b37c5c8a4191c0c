"""A segment: its records by kind and topic, the time they span, and its damage."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.first_offset import Begin, begin_of, by_records
from rocketmq_reindex.jobs.inspecting.show import Row
from rocketmq_reindex.jobs.querying.scan import damage, scan_segment, stale_tail
from rocketmq_reindex.jobs.querying.show import fields
from rocketmq_reindex.jobs.store.log import SegmentFile
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, Message, glance, read_message
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.scan.stale_tail import StaleTail
from rocketmq_reindex.storage_format.text.java_string import java_text
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages
from rocketmq_reindex.udfs.scan.stale_tails import reason

_TOPICS: Final = 1000
_CHUNK: Final = 8 << 20
_TRANSACTIONS: Final = {
    r.TRANSACTION_NONE: "plain",
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}


def segment(path: str, whole: int | None, first: int | None = None) -> tuple[dict[str, Any], Iterator[Row]]:
    """(summary, a row for each good record). Raises UnreadableError where nothing tells where the segment begins."""
    size = files.look(path).size
    begin = begin_of(path, size, first)
    one = SegmentFile(path, begin.offset, size)
    scanner = RangeScanner(ScanSettings(want_units=False))
    end = one.start + max(size, whole or _beside(path, size))
    for _ in scan_segment(scanner, one, end):
        pass
    summary = scanner.summary
    tail = stale_tail(one, end, _later(path, one), summary)
    return _summary(one, begin, end, summary, tail), (fields(message) for message in _messages(one, summary))


def _later(path: str, one: SegmentFile) -> list[SegmentFile]:
    """The segments behind it in its folder."""
    beside = ((entry, first_byte(entry.name)) for entry in files.listing(files.parent(path)))
    return [SegmentFile(entry.path, start, entry.size) for entry, start in beside if start is not None and start > one.start]


def _beside(path: str, size: int) -> int:
    """The size of a whole segment: that of the first one in the folder, if the file is not it."""
    beside = [entry for entry in files.listing(files.parent(path)) if first_byte(entry.name) is not None]
    return beside[0].size if beside else size


def _messages(one: SegmentFile, summary: RangeSummary) -> Iterator[Message]:
    """The records that the scan found good, one after another."""
    pages = Pages(one.path)
    try:
        for start, stop in _places(one, summary):
            place = start
            while place < stop:
                found = _message(pages, one, place)
                if not isinstance(found, Message):
                    break
                yield found
                place += found.size
    finally:
        pages.close()


def _message(pages: Pages, one: SegmentFile, place: int) -> Message | int:
    low = place - one.start
    return read_message(lambda at, count: pages.read(low + at, count), place, pages.size - low)


def _places(one: SegmentFile, summary: RangeSummary) -> Iterator[tuple[int, int]]:
    """[start, end) of the stretches in which the scan found one good record after another."""
    low = one.start
    for offset, length, _ in summary.holes:
        if offset > low:
            yield low, offset
        low = offset + length
    stop = summary.tail if summary.tail >= 0 else summary.end
    if stop > low:
        yield low, stop


def _glances(one: SegmentFile, summary: RangeSummary) -> Iterator[tuple[int, int, int, int, int, bytes]]:
    """Every good record, as ``message.glance`` gives it."""
    with files.Reader(one.path) as reader:

        def load(place: int) -> bytes:
            """A chunk from a record on, with all of that record."""
            low, rest = place - one.start, one.start + one.size - place
            (size,) = struct.unpack(">i", reader.read(low, 4))
            return reader.read(low, min(max(_CHUNK, size), rest))

        for low, stop in _places(one, summary):
            data, base, place = load(low), low, low
            while place < stop:
                at = place - base
                if at + r.FILLER_MIN > len(data) or at + struct.unpack_from(">i", data, at)[0] > len(data):
                    data, base, at = load(place), place, 0
                size, magic = struct.unpack_from(">ii", data, at)
                if magic == r.MAGIC_BLANK or size < r.RECORD_MIN or at + size > len(data):
                    # The filler at the end; or the file has changed.
                    break
                yield glance(data, at)
                place += size


def _summary(one: SegmentFile, begin: Begin, end: int, scanned: RangeSummary, tail: StaleTail | None) -> dict[str, Any]:
    kinds: Counter[tuple[int, int]] = Counter()
    raw: dict[bytes, list[int]] = {}
    used = body = 0
    for size, version, sys_flag, time, body_size, name in _glances(one, scanned):
        kinds[sys_flag, version] += 1
        used += size
        body += body_size
        counts = raw.get(name)
        if counts is None:
            raw[name] = [1, size, time, time]
            continue
        counts[0] += 1
        counts[1] += size
        if time < counts[2]:
            counts[2] = time
        elif time > counts[3]:
            counts[3] = time
    topics: dict[str, list[int]] = {}
    for name, (count, size, low, high) in raw.items():
        # Bytes that Java reads as the same text are one topic.
        before = topics.get(java_text(name), [0, 0, low, high])
        topics[java_text(name)] = [before[0] + count, before[1] + size, min(before[2], low), max(before[3], high)]
    ordered = sorted(topics.items(), key=lambda item: (-item[1][1], item[0]))
    broken = damage(scanned)
    if tail is not None:
        # The old records themselves are listed as what they are: records.
        broken = [(at, size, reason(tail) if at == tail.offset else why) for at, size, why in broken]
    return {
        "bytes": one.size,
        "firstOffset": one.start,
        "firstOffsetBy": begin.by,
        **_misnamed(one, begin, topics),
        "wholeSegment": end - one.start,
        "records": sum(counts[0] for counts in topics.values()),
        "recordBytes": used,
        "bodyBytes": body,
        "kinds": _kinds(kinds),
        "indexItems": scanned.items,
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


def _misnamed(one: SegmentFile, begin: Begin, topics: dict[str, list[int]]) -> dict[str, int]:
    """Where no record is good at the offset that is taken, but is at another: that one."""
    told = None if topics else by_records(one.path, one.size)
    return {} if told is None or told.offset == begin.offset else {"recordsSayFirstOffset": told.offset}


def _kinds(found: Counter[tuple[int, int]]) -> dict[str, int]:
    """Records by kind; one may be of several."""
    kinds: Counter[str] = Counter()
    for (sys_flag, version), count in found.items():
        kinds[_TRANSACTIONS[sys_flag & r.FLAG_TRANSACTION_MASK]] += count
        kinds["V2"] += count * (version == 2)
        kinds["compressed"] += count * bool(sys_flag & FLAG_COMPRESSED)
        kinds["inner batch"] += count * bool(sys_flag & r.FLAG_INNER_BATCH)
        kinds["IPv6"] += count * bool(sys_flag & (r.FLAG_BORN_HOST_V6 | r.FLAG_STORE_HOST_V6))
    return {name: count for name, count in kinds.items() if count}


def _end(scanned: RangeSummary) -> str:
    if scanned.tail < 0:
        return "a filler, or exactly full"
    if scanned.last_nonzero < scanned.tail:
        return f"zeros from offset {scanned.tail} on"
    return f"no record from offset {scanned.tail} on"
