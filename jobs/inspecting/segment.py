"""Inspect a segment: where it begins in the log, its records by kind and topic, the time they span, and its damage."""

import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.inspecting.options import NOT_TOLD, Inspected, InspectedRows
from rocketmq_reindex.jobs.querying.question import fields
from rocketmq_reindex.jobs.querying.scan import damage, scan_segment, stale_tail
from rocketmq_reindex.jobs.querying.shown import told_body
from rocketmq_reindex.jobs.store.contents import SegmentFile, message_at
from rocketmq_reindex.jobs.store.folders import no_record
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.layouts import java_text
from rocketmq_reindex.storage_format.record import columns, layout as r, message as record_message
from rocketmq_reindex.storage_format.record.frame import Stretch, find_record, new_record
from rocketmq_reindex.storage_format.scan import range_notes, range_scan, ranges, settings, stale_tail as scan_stale_tail
from rocketmq_reindex.udfs.scan.segments import lead_of
from rocketmq_reindex.udfs.times import show_time

# ----------------------------------------------------------------------------------------------------------------- first offset
# Where a segment begins in the log: by its name, by an option, or by the PHYSICALOFFSET of a record in it.

OPTION: Final = "--first-offset"
_STEP: Final = 16 << 20
_WORK_MAX: Final = 256 << 20
"""Bytes of what only looks like records that are checked, at most."""
_MAGIC: Final = struct.pack(">i", r.MAGIC_V1)[:2]
"""both versions begin so"""


class Begin(NamedTuple):
    """The offset of a file's first byte in the log, and where that is known from."""

    offset: int
    by: str


def begin_of(path: str, size: int, first: int | None) -> Begin:
    """Return where the segment at ``path`` begins. Raises UnreadableError where it is not known."""
    named = layouts.first_byte(files.base(path))
    if first is not None:
        begin = Begin(first, OPTION)
    elif named is not None:
        begin = Begin(named, "name")
    else:
        by_record = by_records(path, size)
        if by_record is None:
            raise errors.UnreadableError(
                "its name is not the offset of its first byte, in 20 digits, and no good record in it tells that offset: "
                f"give it as {OPTION}"
            )
        begin = by_record
    if begin.offset > layouts.INT64_MAX - size:
        raise errors.UnreadableError(f"offset {begin.offset} is beyond what a commitlog can hold")
    return begin


def by_records(path: str, size: int) -> Begin | None:
    """Return where the file begins by its first good record: PHYSICALOFFSET less the byte at which it stands."""
    record, work = new_record(), 0
    with files.Reader(path) as reader:
        for at, head in _candidates(reader, size):
            (total,) = struct.unpack_from(">i", head, 0)
            (phy_offset,) = struct.unpack_from(">q", head, r.AT_PHYSICAL_OFFSET)
            begin = phy_offset - at
            work += r.HEADER_SIZE
            if r.RECORD_MIN <= total <= size - at and 0 <= begin <= layouts.INT64_MAX - size:
                work += total
                data = np.frombuffer(reader.read(at, total), np.uint8)
                end = begin + size
                code, _ = find_record(Stretch(data, total, phy_offset, end, end), 0, 1, r.CRC_BODY, record)
                if code == r.GOOD:
                    return Begin(begin, f"record at byte {at}")
            if work > _WORK_MAX:
                break
    return None


def _candidates(reader: files.Reader, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte, header) of whatever has a record's magic."""
    for low in range(0, size, _STEP):
        data = reader.read(low, min(_STEP + r.HEADER_SIZE, size - low))
        at = data.find(_MAGIC, 4)
        while 4 <= at < _STEP + 4:
            head = data[at - 4 : at - 4 + r.HEADER_SIZE]
            if len(head) == r.HEADER_SIZE:
                yield low + at - 4, head
            at = data.find(_MAGIC, at + 1)


# ---------------------------------------------------------------------------------------------------------------------- segment
# A segment: its records by kind and topic, the time they span, and its damage.

_TOPICS: Final = 1000
_CHUNK: Final = 8 << 20
_TRANSACTIONS: Final = {
    r.TRANSACTION_NONE: "plain",
    r.TRANSACTION_PREPARED: "prepared",
    r.TRANSACTION_COMMIT: "commit",
    r.TRANSACTION_ROLLBACK: "rollback",
}


def segment(
    path: str, whole: int | None, first: int | None, delays: tuple[int, ...], progress: errors.ProgressListener
) -> Inspected:
    """Return what a segment holds, with a row for each good record. Raises UnreadableError where its first offset is not
    known."""
    size = files.entry_of(path).size
    begin = begin_of(path, size, first)
    file = SegmentFile(path, begin.offset, size, lead_of(files.parent(files.absolute(path)), [files.entry_of(path)]))
    scanner = range_scan.RangeScanner(settings.ScanSettings(want_units=False))
    end = file.start + max(size, whole or _beside(path, size))
    progress.begin("scan", size)
    for _ in scan_segment(scanner, file, end, progress):
        pass
    summary = scanner.summary
    if summary.last_good < 0 and summary.last_sound < 0 and (fault := no_record(path, file.lead)):
        raise errors.InputError(fault)
    tail = stale_tail(file, end, _later(path, file), summary)
    rows = InspectedRows(lambda: _rows(file, summary, delays))
    return Inspected(_summary(file, begin, end, summary, tail, progress), rows)


def _later(path: str, file: SegmentFile) -> list[SegmentFile]:
    """Return the segments behind this one in its folder."""
    beside = ((entry, layouts.first_byte(entry.name)) for entry in files.listing(files.parent(path)))
    return [SegmentFile(entry.path, start, entry.size) for entry, start in beside if start is not None and start > file.start]


def _beside(path: str, size: int) -> int:
    """Return the size of a whole segment: that of the first one in the folder, if the file is not it."""
    beside = [entry for entry in files.listing(files.parent(path)) if layouts.first_byte(entry.name) is not None]
    return beside[0].size if beside else size


def _rows(file: SegmentFile, summary: ranges.RangeSummary, delays: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the records that the scan found good, one after another."""
    pages = files.Pages(file.path)
    try:
        for start, stop in _stretches(file, summary):
            phy_offset = start
            while phy_offset < stop:
                message = message_at(pages, file.start, phy_offset, file.lead)
                if not isinstance(message, record_message.Message):
                    break
                if not message.is_filler:
                    yield fields(message, delays, told_body(message, partial(_body, pages, file, message)))
                phy_offset = message.phy_offset + message.size
    finally:
        pages.close()


def _body(pages: files.Pages, file: SegmentFile, message: record_message.Message, size_max: int) -> bytes:
    return pages.read(message.phy_offset - file.start + message.body_at, min(size_max, message.body_size))


def _stretches(file: SegmentFile, summary: ranges.RangeSummary) -> Iterator[tuple[int, int]]:
    """Return [start, end) of the stretches in which one good record follows on another, as far as damage is listed."""
    low = file.start
    for offset, length, _ in summary.holes:
        if offset > low:
            yield low, offset
        low = offset + length
    stop = summary.tail if summary.tail >= 0 else summary.end
    if stop > low and not range_notes.left_out(summary.holes):
        yield low, stop


def _glances(
    file: SegmentFile, summary: ranges.RangeSummary, progress: errors.ProgressListener
) -> Iterator[record_message.Glance]:
    """Yield every good record, as ``message.glance`` gives it."""
    progress.begin("count", sum(stop - low for low, stop in _stretches(file, summary)))
    lead = file.lead
    with files.Reader(file.path) as reader:

        def load(phy_offset: int) -> bytes:
            """Return a chunk from a record on, with all of that record."""
            low, room = phy_offset - file.start, file.start + file.size - phy_offset
            size = int.from_bytes(reader.read(low, 4), "big", signed=True)
            return reader.read(low, min(max(_CHUNK, size), room))

        for low, stop in _stretches(file, summary):
            # The record itself stands behind what is in front of it.
            data, base, phy_offset = load(low + lead), low + lead, low + lead
            while phy_offset < stop:
                at = phy_offset - base
                if at + r.FILLER_MIN > len(data) or at + struct.unpack_from(">i", data, at)[0] > len(data):
                    progress.moved(phy_offset - base)
                    data, base, at = load(phy_offset), phy_offset, 0
                    if len(data) < r.FILLER_MIN:
                        # A blank of DLedger, shorter than the header of an entry.
                        break
                size, magic = struct.unpack_from(">ii", data, at)
                if magic == r.MAGIC_BLANK or size < r.RECORD_MIN or at + size > len(data):
                    # The filler at the end; or the file has changed.
                    break
                yield record_message.glance(data, at)
                phy_offset += size + lead


def _summary(
    file: SegmentFile,
    begin: Begin,
    end: int,
    scanned: ranges.RangeSummary,
    tail: scan_stale_tail.StaleTail | None,
    progress: errors.ProgressListener,
) -> dict[str, Any]:
    kinds: Counter[tuple[int, int]] = Counter()
    raw: dict[bytes, list[int]] = {}
    used = body = 0
    for size, version, flag, sys_flag, time, body_size, name in _glances(file, scanned, progress):
        if columns.is_filler(sys_flag, flag):
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
        **_entries(scanned),
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
        **_not_told(scanned),
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


def _entries(scanned: ranges.RangeSummary) -> dict[str, Any]:
    """Return which entries a segment of DLedger's log has, by index and term."""
    if not scanned.entries:
        return {}
    (first, first_term, _, _, last, last_term, _, _) = scanned.entries
    return {"firstIndex": first, "firstTerm": first_term, "lastIndex": last, "lastTerm": last_term}


def _lost(scanned: ranges.RangeSummary) -> dict[str, Any]:
    """Return what stands for lost bytes, where a repair put anything. Its records are no messages, and count for nothing else
    here."""
    if not scanned.lost:
        return {}
    stretches = [{"offset": offset, "length": length} for offset, length in scanned.lost]
    return {"lostBytes": sum(length for _, length in scanned.lost), "lost": stretches}


def _not_told(scanned: ranges.RangeSummary) -> dict[str, str]:
    """Return where the listed damage ends, where there is more of it. Its records are counted up to there."""
    left_out = range_notes.left_out(scanned.holes)
    return {NOT_TOLD: f"offset {sum(scanned.holes[-1][:2])} and all behind it: {left_out}"} if left_out else {}


def _misnamed(file: SegmentFile, begin: Begin, topics: dict[str, list[int]]) -> dict[str, int]:
    """Return the first offset that the records give, where no record fits the one that was taken."""
    by_record = None if topics else by_records(file.path, file.size)
    return {} if by_record is None or by_record.offset == begin.offset else {"recordsSayFirstOffset": by_record.offset}


def _kinds(records_of: Counter[tuple[int, int]]) -> dict[str, int]:
    """Return records by kind; one may be of several."""
    kinds: Counter[str] = Counter()
    for (sys_flag, version), count in records_of.items():
        kinds[_TRANSACTIONS[sys_flag & r.FLAG_TRANSACTION_MASK]] += count
        kinds["V2"] += count * (version == 2)
        kinds["compressed"] += count * bool(sys_flag & record_message.FLAG_COMPRESSED)
        kinds["inner batch"] += count * bool(sys_flag & r.FLAG_INNER_BATCH)
        kinds["IPv6"] += count * bool(sys_flag & (r.FLAG_BORN_HOST_V6 | r.FLAG_STORE_HOST_V6))
    return {name: count for name, count in kinds.items() if count}


def _end(scanned: ranges.RangeSummary) -> str:
    if scanned.tail < 0:
        return "a BLANK, or exactly full"
    if scanned.last_nonzero < scanned.tail:
        return f"zeros from offset {scanned.tail} on"
    return f"no record from offset {scanned.tail} on"
