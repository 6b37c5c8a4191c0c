"""Find a key without an index, or messages of a queue without its files: read every record of the log, as the build does.

Compiles, or loads compiled code, once.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.jobs.store import folders, tag_items
from rocketmq_reindex.jobs.store.contents import SegmentFile, StoreLog
from rocketmq_reindex.jobs.store.queue import ServedMessage
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import CRC_NONE
from rocketmq_reindex.storage_format.scan import range_notes, range_scan, ranges, settings, stale_tail as scan_stale_tail
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX
from rocketmq_reindex.udfs.scan.ranges import SegmentReader, find_stale_tail, has_data


def scan_log(
    log: StoreLog, names: list[str] | None, hash_of: Callable[[str], int], notes: folders.Notes, progress: ProgressListener,
    parts: Sequence[tag_items.LogStretch] | None = None,
) -> set[int]:  # fmt: skip
    """Return the physical offsets of records that may have a key or tag: one of their items has its hash.

    ``names`` None: of any topic; ``hash_of`` gives the hash for a topic. ``parts`` of the log are read, None: all of it.
    """
    scanner = range_scan.RangeScanner(settings.ScanSettings(crc_mode=CRC_NONE, want_units=False))
    offsets: set[int] = set()
    stale: list[scan_stale_tail.StaleTail] = []
    for block in _blocks(scanner, log, stale, notes, progress, parts):
        # Every topic of the block's records is in the table by now.
        hashes = {hash_of(name) for name in (scanner.names.texts if names is None else names)}
        hit = np.isin(block.items.staged["key_hash"], np.array(sorted(hashes), dtype=np.int64))
        offsets.update(block.items.staged["phy_offset"][hit].tolist())
    return {phy_offset for phy_offset in offsets if not _is_stale(phy_offset, stale)}


class _KeyTable(NamedTuple):
    """Hashes of keys, sorted, and the number of the key of each: there may be very many topics."""

    hashes: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    numbers: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def with_topics(self, topics: set[str], keys: Sequence[str]) -> "_KeyTable":
        """Return this table and the keys in more topics."""
        pairs = (layouts.key_hash(topic, key) for topic in topics for key in keys)
        added = np.fromiter(pairs, np.int64, len(topics) * len(keys))
        hashes = np.concatenate((self.hashes, added))
        numbers = np.concatenate((self.numbers, np.tile(np.arange(len(keys)), len(topics))))
        order = np.argsort(hashes)
        return _KeyTable(hashes[order], numbers[order])

    def hits(self, items: npt.NDArray[np.void]) -> Iterator[tuple[int, int]]:
        """Yield the number of a key and the physical offset for each item that may be of the key."""
        values = items["key_hash"].astype(np.int64)
        hit = np.flatnonzero(np.isin(values, self.hashes))
        low, high = (np.searchsorted(self.hashes, values[hit], side) for side in ("left", "right"))
        for phy_offset, begin, end in zip(items["phy_offset"][hit].tolist(), low.tolist(), high.tolist(), strict=True):
            for number in self.numbers[begin:end].tolist():
                yield number, phy_offset


def scan_keys(
    log: StoreLog, keys: Sequence[str], notes: folders.Notes, progress: ProgressListener
) -> tuple[dict[str, set[int]], set[str]]:  # fmt: skip
    """Return for each key the physical offsets of records that may have it, and the topics of all records."""
    scanner = range_scan.RangeScanner(settings.ScanSettings(crc_mode=CRC_NONE, want_units=False))
    found: dict[str, set[int]] = {key: set() for key in keys}
    names, table = [*found], _KeyTable()
    stale: list[scan_stale_tail.StaleTail] = []
    topics, texts, met = set[str](), scanner.names.texts, 0
    for block in _blocks(scanner, log, stale, notes, progress):
        # There is another table where one has too many names.
        texts, met = scanner.names.texts, met if scanner.names.texts is texts else 0
        if added := {*texts[met:]} - topics:
            topics |= added
            table = table.with_topics(added, names)
        met = len(texts)
        for number, phy_offset in table.hits(block.items.staged):
            found[names[number]].add(phy_offset)
    kept = {key: {at for at in offsets if not _is_stale(at, stale)} for key, offsets in found.items()}
    return kept, topics


def scan_queue(
    log: StoreLog,
    topic: str,
    queue: int,
    offset: int | None,
    time: int | None,
    count: int,
    notes: folders.Notes,
    progress: ProgressListener,
) -> Iterator[ServedMessage]:
    """Yield the messages whose records name ``count`` offsets from ``offset`` on, or the first ``count`` stored at ``time`` or
    later.

    Of a topic that was made anew several may name the same offset: each is found.
    """
    units = _units(log, topic, queue, notes, progress)
    if offset is None:
        assert time is not None
        yield from islice((queued for queued in _messages(log, units, notes) if queued.message.store_time >= time), count)
        return
    # The record of a batch names the offset of its first message: it may reach over ``offset``, unless the next one of the same
    # life of the topic begins there or before.
    ends = [*(after.queue_offset for after in units), -1][1:]
    asked_units = [
        unit for unit, end in zip(units, ends, strict=True)
        if unit.queue_offset < offset + count and not unit.queue_offset < end <= offset
    ]  # fmt: skip
    for queued in _messages(log, sorted(asked_units), notes):
        assert queued.queue_offset is not None
        if queued.queue_offset >= offset or queued.queue_offset + queued.message.message_count > offset:
            yield queued


class _Unit(NamedTuple):
    """What the log says of one record of a queue."""

    queue_offset: int
    phy_offset: int


def _units(log: StoreLog, topic: str, queue: int, notes: folders.Notes, progress: ProgressListener) -> list[_Unit]:
    """Return the records that are dispatched to a queue, in the order of the log."""
    scanner = range_scan.RangeScanner(
        settings.ScanSettings(crc_mode=CRC_NONE, lmq=topic.startswith(LMQ_PREFIX), want_items=False)
    )
    queue_units: list[_Unit] = []
    stale: list[scan_stale_tail.StaleTail] = []
    for block in _blocks(scanner, log, stale, notes, progress):
        names = np.array([k for k, text in enumerate(scanner.names.texts) if text == topic], dtype=np.int32)
        count = scanner.queue_count
        queues = np.flatnonzero(np.isin(scanner.queues.name[:count], names) & (scanner.queues.queue_id[:count] == queue))
        hit = np.isin(block.units.queue, queues)
        queue_units += map(_Unit, block.units.offset[hit].tolist(), block.units.phy_offset[hit].tolist())
    return [unit for unit in queue_units if not _is_stale(unit.phy_offset, stale)]


def _messages(log: StoreLog, units: list[_Unit], notes: folders.Notes) -> Iterator[ServedMessage]:
    for queue_offset, phy_offset in units:
        message = log.message(phy_offset)
        if isinstance(message, str):
            notes.add("unreadable record", f"offset {phy_offset}: {message}")
        else:
            yield ServedMessage(message, queue_offset)


def _blocks(
    scanner: range_scan.RangeScanner, log: StoreLog, stale: list[scan_stale_tail.StaleTail], notes: folders.Notes,
    progress: ProgressListener, parts: Sequence[tag_items.LogStretch] | None = None,
) -> Iterator[settings.Block]:  # fmt: skip
    """Yield the blocks of all segments, or of parts of the log; what of them cannot be read, or is damaged, is a note.

    Old records behind the log's end are among them: known once their segment has been read, they are put into ``stale``.
    """
    pieces = list(_pieces(log.segments, parts))
    progress.begin("scan", sum(part.high - part.low for _, _, part in pieces))
    for number, segment, part in pieces:
        end = segment_end(log.segments, segment)
        try:
            yield from scan_segment(scanner, segment, end, progress, part)
            tail = stale_tail(segment, end, log.segments[number + 1 :], scanner.summary)
        except (OSError, InputError) as error:
            notes.add("unreadable segment", f"{escape(segment.path)}: {reason(error)}")
            continue
        broken = damage(scanner.summary)
        if tail is not None:
            stale.append(tail)
            notes.add("stale tail", f"{escape(segment.path)}: offset {tail.offset}: {tail.reason}", lost=False)
            broken = [part for part in broken if part.phy_offset < tail.offset]
        for offset, length, why in broken:
            size = counted(length, "byte")
            notes.add("damage", f"{escape(segment.path)}: offset {offset}, {size}: {why}: no record found in it")
        if left_out := range_notes.left_out(scanner.summary.holes):
            notes.add("very much damage", f"{escape(segment.path)}: {left_out}")
        for offset, length in scanner.summary.lost:
            size = counted(length, "byte")
            notes.add("lost bytes", f"{escape(segment.path)}: offset {offset}, {size}: a repair filled them: nothing is left")
    progress.end()


def _pieces(
    segments: list[SegmentFile], parts: Sequence[tag_items.LogStretch] | None
) -> Iterator[tuple[int, SegmentFile, tag_items.LogStretch]]:
    """Yield each segment with its number and the part of it that is to be read."""
    for number, segment in enumerate(segments):
        whole = tag_items.LogStretch(segment.start, segment.start + segment.size)
        for part in (whole,) if parts is None else parts:
            piece = tag_items.LogStretch(max(part.low, whole.low), min(part.high, whole.high))
            if piece.low < piece.high or piece == whole:
                yield number, segment, piece


def _is_stale(phy_offset: int, tails: list[scan_stale_tail.StaleTail]) -> bool:
    return any(tail.offset <= phy_offset < tail.offset + tail.length for tail in tails)


def stale_tail(
    segment: SegmentFile, end: int, later: list[SegmentFile], summary: ranges.RangeSummary
) -> scan_stale_tail.StaleTail | None:
    """Return the old records behind the log's end, where they lie in a scanned segment. Raises OSError, InputError."""
    if not summary.holes or any(has_data(later_segment.path, later_segment.size) for later_segment in later):
        return None
    holes = scan_stale_tail.damage_of(summary.holes)
    if segment.lead:
        return scan_stale_tail.old_entries(holes, summary.last_good)
    tail = find_stale_tail(segment.path, (segment.start, segment.start + segment.size, end), holes)
    return tail if isinstance(tail, scan_stale_tail.StaleTail) else None


def segment_end(segments: list[SegmentFile], segment: SegmentFile) -> int:
    """Return the absolute offset where a segment would end whole; only the last one may be short."""
    longest = max(of_log.size for of_log in segments)
    return segment.start + (longest if segment is segments[-1] else segment.size)


def scan_segment(
    scanner: range_scan.RangeScanner,
    segment: SegmentFile,
    end: int,
    progress: ProgressListener,
    part: tag_items.LogStretch | None = None,
) -> Iterator[settings.Block]:
    """Yield the blocks of a segment, or of a part of it. Whole it would end at the offset ``end``. Raises OSError,
    InputError."""
    stop = segment.start + segment.size
    low, high = part or (segment.start, stop)
    spec = ranges.RangeSpec(0, segment.path, segment.start, end, stop, low, high, True, segment.lead)
    reached = low

    def report(stop: int) -> None:
        nonlocal reached
        if stop > reached:
            progress.moved(stop - reached)
            reached = stop

    with SegmentReader(segment.path, segment.start, lambda at, _: report(at), high) as reader:
        yield from scanner.scan(spec, reader.read, reader.view)
        report(high)


class UnreadBytes(NamedTuple):
    """Bytes of the log that are no record, and why."""

    phy_offset: int
    length: int
    reason: str


def damage(summary: ranges.RangeSummary) -> list[UnreadBytes]:
    """Return the damaged parts of a scanned segment. Zeros up to its end are no damage."""
    broken = [UnreadBytes(offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    if summary.tail >= 0 and summary.last_nonzero >= summary.tail:
        broken.append(UnreadBytes(summary.tail, summary.last_nonzero + 1 - summary.tail, r.REASONS[summary.tail_code]))
    return broken
