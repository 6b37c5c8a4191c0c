"""A segment: its records by kind and topic, the time they span, and its damage."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.inspecting.first_offset import Begin, begin_of, by_records
from rocketmq_reindex.jobs.inspecting.inspected import Inspected, Rows
from rocketmq_reindex.jobs.querying.fields import fields
from rocketmq_reindex.jobs.querying.scan import damage, scan_segment, stale_tail
from rocketmq_reindex.jobs.store.first_bytes import no_record
from rocketmq_reindex.jobs.store.log import SegmentFile, message_at
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.dispatch import is_filler
from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, Glance, Message, glance
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.scan.stale_tail import StaleTail
from rocketmq_reindex.storage_format.text.java_string import java_text
from rocketmq_reindex.storage_format.told import Told
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages

_TOPICS: Final = 1000
_CHUNK: Final = 8 << 20
_TRANSACTIONS: Final = {
    r.TRANSACTION_NONE: "plain",
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}


def segment(path: str, whole: int | None, first: int | None, told: Told) -> Inspected:
    """What a segment holds, with a row for each good record. Raises UnreadableError where its first offset is not known."""
    size = files.entry_of(path).size
    begin = begin_of(path, size, first)
    file = SegmentFile(path, begin.offset, size)
    scanner = RangeScanner(ScanSettings(want_units=False))
    end = file.start + max(size, whole or _beside(path, size))
    told.begin("scan", size)
    for _ in scan_segment(scanner, file, end, told):
        pass
    summary = scanner.summary
    if summary.last_good < 0 and summary.last_sound < 0 and (said := no_record(path)):
        raise InputError(said)
    tail = stale_tail(file, end, _later(path, file), summary)
    rows = Rows(lambda: (fields(message) for message in _messages(file, summary)))
    return Inspected(_summary(file, begin, end, summary, tail, told), rows)


def _later(path: str, file: SegmentFile) -> list[SegmentFile]:
    """The segments behind it in its folder."""
    beside = ((entry, first_byte(entry.name)) for entry in files.listing(files.parent(path)))
    return [SegmentFile(entry.path, start, entry.size) for entry, start in beside if start is not None and start > file.start]


def _beside(path: str, size: int) -> int:
    """The size of a whole segment: that of the first one in the folder, if the file is not it."""
    beside = [entry for entry in files.listing(files.parent(path)) if first_byte(entry.name) is not None]
    return beside[0].size if beside else size


def _messages(file: SegmentFile, summary: RangeSummary) -> Iterator[Message]:
    """The records that the scan found good, one after another."""
    pages = Pages(file.path)
    try:
        for start, stop in _stretches(file, summary):
            phy_offset = start
            while phy_offset < stop:
                message = message_at(pages, file.start, phy_offset)
                if not isinstance(message, Message):
                    break
                if not message.is_filler:
                    yield message
                phy_offset += message.size
    finally:
        pages.close()


def _stretches(file: SegmentFile, summary: RangeSummary) -> Iterator[tuple[int, int]]:
    """[start, end) of the stretches in which the scan found one good record after another."""
    low = file.start
    for offset, length, _ in summary.holes:
        if offset > low:
            yield low, offset
        low = offset + length
    stop = summary.tail if summary.tail >= 0 else summary.end
    if stop > low:
        yield low, stop


def _glances(file: SegmentFile, summary: RangeSummary, told: Told) -> Iterator[Glance]:
    """Every good record, as ``message.glance`` gives it."""
    told.begin("count", sum(stop - low for low, stop in _stretches(file, summary)))
    with files.Reader(file.path) as reader:

        def load(phy_offset: int) -> bytes:
            """A chunk from a record on, with all of that record."""
            low, rest = phy_offset - file.start, file.start + file.size - phy_offset
            (size,) = struct.unpack(">i", reader.read(low, 4))
            return reader.read(low, min(max(_CHUNK, size), rest))

        for low, stop in _stretches(file, summary):
            data, base, phy_offset = load(low), low, low
            while phy_offset < stop:
                at = phy_offset - base
                if at + r.FILLER_MIN > len(data) or at + struct.unpack_from(">i", data, at)[0] > len(data):
                    told.moved(phy_offset - base)
                    data, base, at = load(phy_offset), phy_offset, 0
                size, magic = struct.unpack_from(">ii", data, at)
                if magic == r.MAGIC_BLANK or size < r.RECORD_MIN or at + size > len(data):
                    # The filler at the end; or the file has changed.
                    break
                yield glance(data, at)
                phy_offset += size


def _summary(
    file: SegmentFile, begin: Begin, end: int, scanned: RangeSummary, tail: StaleTail | None, told: Told
) -> dict[str, Any]:
    kinds: Counter[tuple[int, int]] = Counter()
    raw: dict[bytes, list[int]] = {}
    used = body = 0
    for size, version, flag, sys_flag, time, body_size, name in _glances(file, scanned, told):
        if is_filler(sys_flag, flag):
            continue
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
        broken = [part._replace(reason=tail.reason) if part.phy_offset == tail.offset else part for part in broken]
    return {
        "bytes": file.size,
        "firstOffset": file.start,
        "firstOffsetBy": begin.by,
        **_misnamed(file, begin, topics),
        "wholeSegment": end - file.start,
        "records": sum(counts[0] for counts in topics.values()),
        "recordBytes": used,
        "bodyBytes": body,
        "kinds": _kinds(kinds),
        "indexItems": scanned.items - scanned.tag_items,
        "tagItems": scanned.tag_items,
        "firstStoreTime": show_time(min(counts[2] for counts in topics.values())) if topics else None,
        "lastStoreTime": show_time(max(counts[3] for counts in topics.values())) if topics else None,
        "endsWith": _end(scanned),
        "damagedBytes": sum(part.length for part in broken),
        **_lost(scanned),
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
        "damage": [{"offset": part.phy_offset, "length": part.length, "reason": part.reason} for part in broken],
    }


def _lost(scanned: RangeSummary) -> dict[str, Any]:
    """What stands for lost bytes, where a repair put anything: its records are no messages, and count for nothing else here."""
    if not scanned.lost:
        return {}
    stretches = [{"offset": offset, "length": length} for offset, length in scanned.lost]
    return {"lostBytes": sum(length for _, length in scanned.lost), "lost": stretches}


def _misnamed(file: SegmentFile, begin: Begin, topics: dict[str, list[int]]) -> dict[str, int]:
    """The first offset that the records give, where no record fits the one that was taken."""
    by_record = None if topics else by_records(file.path, file.size)
    return {} if by_record is None or by_record.offset == begin.offset else {"recordsSayFirstOffset": by_record.offset}


def _kinds(records_of: Counter[tuple[int, int]]) -> dict[str, int]:
    """Records by kind; one may be of several."""
    kinds: Counter[str] = Counter()
    for (sys_flag, version), count in records_of.items():
        kinds[_TRANSACTIONS[sys_flag & r.FLAG_TRANSACTION_MASK]] += count
        kinds["V2"] += count * (version == 2)
        kinds["compressed"] += count * bool(sys_flag & FLAG_COMPRESSED)
        kinds["inner batch"] += count * bool(sys_flag & r.FLAG_INNER_BATCH)
        kinds["IPv6"] += count * bool(sys_flag & (r.FLAG_BORN_HOST_V6 | r.FLAG_STORE_HOST_V6))
    return {name: count for name, count in kinds.items() if count}


def _end(scanned: RangeSummary) -> str:
    if scanned.tail < 0:
        return "a BLANK, or exactly full"
    if scanned.last_nonzero < scanned.tail:
        return f"zeros from offset {scanned.tail} on"
    return f"no record from offset {scanned.tail} on"
