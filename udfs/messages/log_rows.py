"""The records of a log as rows, and its damage: what ``rocketmq-commitlog`` and ``messages`` of the Python API are made of."""

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts, versions
from rocketmq_reindex.storage_format.queue.extended import NO_FILTERS, ConsumerFilters
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.layout import CRC_BODY, CRC_NONE
from rocketmq_reindex.storage_format.record.message import read_message
from rocketmq_reindex.storage_format.record.state import MessageArrays
from rocketmq_reindex.storage_format.scan import range_notes, range_scan, ranges, settings as scan_settings, stale_tail
from rocketmq_reindex.udfs.messages.batches import MessageBatches
from rocketmq_reindex.udfs.scan.ranges import SegmentReader, find_stale_tail
from rocketmq_reindex.udfs.scan.segments import committed_index, followed_by_data, list_segments
from rocketmq_reindex.udfs.times import DELAY_LEVELS, delay_levels

# ----------------------------------------------------------------------------------------------------------------------- wanted
# Which records are wanted.


@dataclass(frozen=True)
class Topics:
    """The wanted topics: those that match a glob of ``include`` (all, if it is empty) and no glob of ``exclude``."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def wants(self, topic: str) -> bool:
        """Return whether a topic is wanted."""
        is_included = not self.include or any(fnmatch.fnmatchcase(topic, glob) for glob in self.include)
        return is_included and not any(fnmatch.fnmatchcase(topic, glob) for glob in self.exclude)


@dataclass(frozen=True)
class Bounds:
    """The wanted records: phy_offset in [start_offset, end_offset), store time in [start_time, end_time), milliseconds."""

    start_offset: int = 0
    end_offset: int = layouts.INT64_MAX
    start_time: int = layouts.INT64_MIN
    end_time: int = layouts.INT64_MAX + 1

    @property
    def empty(self) -> bool:
        """Whether no record can be within them."""
        return self.start_offset >= self.end_offset or self.start_time >= self.end_time


# ----------------------------------------------------------------------------------------------------------------------- damage
# Damage in one range of the log, old records behind the log's end, and how both are shown.

ShownDamage = Literal["skip", "rows", "fail"]
"""how damage is shown among messages; what a build makes of it is ``--on-damage`` (``OnDamage`` in ``jobs.command.option``)"""
SHOWN_DAMAGE: Final = get_args(ShownDamage)
SKIP, ROWS, FAIL = SHOWN_DAMAGE


@dataclass(frozen=True)
class LogRange:
    """A range of the log, which is read from its start to its end."""

    spec: ranges.RangeSpec
    segment: str
    """name of its segment"""
    followed: bool
    """whether a later segment holds data: then zeros at the end of this one are damage"""
    missing: ranges.Hole | None = None
    """segments missing before this one"""
    committed: int = layouts.INT64_MAX
    """as in ``ScanSettings``"""


class LogEndSearch:
    """Finds where the log ends in a range of its last segment with data, if old records lie behind that end.

    ``before`` is the summary of the scan of the segment up to the range; ``looked``: a search has looked at its damage.
    """

    def __init__(self, log_range: LogRange, before: ranges.RangeSummary, *, looked: bool) -> None:
        self._range, self._before, self._last_good = log_range, before, before.last_good
        self._stale: stale_tail.StaleTail | None = None
        holes = stale_tail.damage_of(before.holes)
        self._seen, self._on_way = len(holes) if looked else 0, looked
        self._settled = any(not hole.framed for hole in holes[: self._seen])
        self._last: tuple[int, int] | None = None
        """end and store time of the last record, once they are known"""
        self._look_for_tail(holes)

    def _look_for_tail(self, holes: list[stale_tail.DamagedStretch]) -> None:
        if len(holes) > self._seen and not self._is_decided:
            spec = self._range.spec
            bounds = spec.segment_start, spec.data_end, spec.segment_end
            old = stale_tail.old_entries(holes, self._last_good)
            tail = old if spec.lead else find_stale_tail(spec.path, bounds, holes)
            self._stale = tail if isinstance(tail, stale_tail.StaleTail) else None
            self._settled = any(not hole.framed for hole in holes)
        self._seen = len(holes)

    @property
    def _is_decided(self) -> bool:
        """Whether no more looks are needed, which read much: behind damage of unknown length none can be the log's end."""
        if self._on_way and self._seen >= HELD_HOLES:
            return True
        return self._stale is not None or self._range.followed or (self._settled and not self._range.spec.lead)

    @property
    def is_found(self) -> bool:
        """Whether the log's end is known."""
        return self._stale is not None

    def before(self, low: int) -> bool:
        """Return whether the log goes on at the phy_offset ``low``, as far as that is known yet."""
        return self._stale is None or low < self._stale.offset

    def of_log(self, summary: ranges.RangeSummary) -> int:
        """Return the offset behind the last record that is none of the old ones, once the range is read."""
        return max(summary.end, summary.tail) if self._stale is None else self._stale.offset

    def cut(self, block: scan_settings.Block, summary: ranges.RangeSummary) -> scan_settings.Block:
        """Return a block without old records. The summary has all damage before the block's last record by now."""
        phy_offset, size, *_ = block.messages
        if len(phy_offset):
            self._last_good = int(phy_offset[-1])
        if not self._is_decided:
            before, lead = self._before, self._range.spec.lead
            first = [[before.tail, summary.first - before.tail, r.BAD_MAGIC]] if 0 <= before.tail < summary.first else []
            seen = self._seen - len(before.holes)
            new = [*first[seen:], *summary.holes[max(0, seen - len(first)) :]]
            # What stands behind the last record comes with the next block: records may follow on it.
            new = [hole for hole in new if hole[0] < self._last_good or not len(phy_offset)]
            if lead or (new and not self._are_in_time(new, block)):
                until = seen + len(new) - len(first)
                self._look_for_tail(stale_tail.damage_of([*before.holes, *first, *summary.holes[:until]]))
            elif new:
                self._seen += len(new)
                self._settled = self._settled or any(code < r.FIRST_FRAMED for _, _, code in new)
            if len(phy_offset):
                self._last = self._last_good + int(size[-1]), block.store_time(-1)
        if self._stale is None:
            return block
        count = int(np.searchsorted(block.messages.phy_offset, self._stale.offset))
        kept = MessageArrays(*(column[:count] for column in block.messages))  # type: ignore[arg-type]  # of two dtypes
        return dataclasses.replace(block, messages=kept)

    def _are_in_time(self, holes: list[list[int]], block: scan_settings.Block) -> bool:
        """Return whether the records around each of some holes show that no stale tail begins there: nothing is read for it."""
        if self._last is None:
            self._last = _record_before(self._range.spec, self._before.last_good)
        return stale_tail.are_in_time(holes, self._last, block.messages.phy_offset, block.messages.size, block.store_time)

    def holes(self, holes: list[ranges.Hole]) -> list[ranges.Hole]:
        """Return the damage of the range, with old records as one stretch, where they begin."""
        if self._stale is None:
            return holes
        kept = [hole for hole in holes if hole.offset < self._stale.offset]
        if len(kept) < len(holes):
            kept.append(ranges.Hole(self._range.segment, self._stale.offset, self._stale.length, self._stale.reason))
        return kept


def _record_before(spec: ranges.RangeSpec, offset: int) -> tuple[int, int]:
    """Return end and store time of the record at an offset of the log; -1 and 0 where none is."""
    if offset < spec.segment_start:
        return -1, 0
    with files.Reader(spec.path) as reader:
        found = read_message(lambda at, n: reader.read(offset - spec.segment_start + at, n), offset, spec.data_end - offset)
    return (-1, 0) if isinstance(found, int) else (offset + found.size, found.store_time)


def holes_of(
    log_range: LogRange, before: ranges.RangeSummary, summary: ranges.RangeSummary, bounds: Bounds
) -> list[ranges.Hole]:
    """Return the damage that ends in a range. It may begin before it: ``before``, the summary up to it, has the offset."""
    spec, name = log_range.spec, log_range.segment
    holes = [ranges.Hole(name, offset, length, r.REASONS[code]) for offset, length, code in summary.holes]
    if left_out := range_notes.left_out(holes):
        holes[-1] = dataclasses.replace(holes[-1], reason=f"{holes[-1].reason}; {left_out}")
    open_at, code = max(before.tail, bounds.start_offset) if before.tail >= 0 else -1, before.tail_code
    if open_at >= 0 and summary.first >= 0:
        if summary.first > open_at:
            holes.insert(0, ranges.Hole(name, open_at, summary.first - open_at, r.REASONS[code]))
        open_at = -1
    if open_at < 0 and summary.tail >= 0:
        open_at, code = summary.tail, summary.tail_code
    if open_at < 0 or spec.high < min(spec.data_end, bounds.end_offset):
        return holes
    if log_range.followed:
        return [*holes, ranges.Hole(name, open_at, spec.high - open_at, r.REASONS[code])]
    last = max(before.last_nonzero, summary.last_nonzero)
    if last >= open_at:
        length = last + 1 - open_at
        sound = max(before.last_sound, summary.last_sound) >= open_at
        torn = "torn tail: " if length <= ranges.TORN_TAIL_MAX and not sound else ""
        holes.append(ranges.Hole(name, open_at, length, f"{torn}{r.REASONS[code]}"))
    return holes


def lost(holes: Sequence[ranges.Hole]) -> list[ranges.Hole]:
    """Return the damage that may have been messages: neither a torn tail nor old records behind the log's end."""
    return [hole for hole in holes if not hole.reason.startswith(("torn tail", stale_tail.STALE))]


# ------------------------------------------------------------------------------------------------------------------------- rows
# The records of a log as rows, by the scan that a build uses.

BLOCK_ROWS: Final = 1 << 15
RANGE_SIZE: Final = 256 << 20
"""Bytes of a range. The scan of one inside a segment walks there from the segment's start: four to a GiB are worth that."""
UNPACKED_MAX: Final = 4 << 20
"""``MessageStoreConfig.maxMessageSize``: by default no body is longer."""


HELD_HOLES: Final = 4096
"""damaged stretches of a segment that a way holds: behind so many no old records are looked for"""


class ScanWay:
    """What is known of a segment up to an offset, so that a scan goes on there: of the damage in which it stands, too.

    ``before`` is the summary of all that was read: it ends at ``before.high``, with a record to come at ``before.end``, or -1
    inside of damage.
    """

    def __init__(self, before: ranges.RangeSummary) -> None:
        self.before = before

    @property
    def at(self) -> int:
        """The offset of the next byte to look at."""
        return self.before.end if self.before.end >= 0 else self.before.high

    def moved(self, before: ranges.RangeSummary, scanner: range_scan.RangeScanner, block: scan_settings.Block) -> None:
        """Take in what a scan from ``before`` on has handed out: ``block`` is the last of it."""
        place = scanner.place
        gap = place.gap, place.code
        self._set(before, scanner.summary, place.offset, gap)
        places = block.messages.phy_offset
        self.before.last_good = int(places[-1]) if len(places) else max(before.last_good, self.before.last_good)
        self.before.entries = [0, 0, 0, 0, *place.entry] if place.entry[0] >= 0 else []

    def ended(self, before: ranges.RangeSummary, summary: ranges.RangeSummary, segment_end: int) -> None:
        """Take in the summary of a scan that has come to its end. Behind what is not committed nothing is of the log."""
        self._set(before, summary, max(summary.end, summary.high), (summary.tail, summary.tail_code))
        self.before.end = segment_end if summary.later >= 0 else summary.end
        self.before.last_good = max(before.last_good, summary.last_good)
        self.before.entries = summary.entries or before.entries

    def _set(self, before: ranges.RangeSummary, summary: ranges.RangeSummary, at: int, gap: tuple[int, int]) -> None:
        is_open, nonzero = gap[0] >= 0, summary.last_nonzero
        if is_open and before.tail >= 0 and summary.first < 0:
            # The damage in which it began.
            gap, nonzero = (before.tail, before.tail_code), max(before.last_nonzero, nonzero)
        good = self.before.last_good
        holes = [*before.holes, *summary.holes]
        if before.tail >= 0 and summary.first > before.tail:
            holes.insert(len(before.holes), [before.tail, summary.first - before.tail, before.tail_code])
        self.before = ranges.RangeSummary(
            -1, before.low, at, True, end=-1 if is_open else at, tail=gap[0], tail_code=gap[1] if is_open else 0,
            last_nonzero=nonzero, holes=holes[:HELD_HOLES], last_good=good,
            last_sound=max(before.last_sound, summary.last_sound),
        )  # fmt: skip


@dataclass(frozen=True)
class LogRowReader:
    """The wanted records of a log as rows with the columns ``schema`` (``batches.fields``), and its damage.

    ``roots`` are the folders of segments. Sizes are bytes: ``segment_size`` 0 takes that of the files, ``unpack`` is the most
    that an unpacked body may have, 0 leaves bodies as they are stored. ``delays`` are the milliseconds of each delay level,
    ``filters`` the registrations by which the column ``bitMap`` is computed.
    """

    schema: pa.Schema
    roots: tuple[str, ...]
    bounds: Bounds = Bounds()
    topics: Topics = Topics()
    range_size: int = RANGE_SIZE
    segment_size: int = 0
    crc: int = CRC_BODY
    unpack: int = 0
    broker_version: str = versions.NEWEST
    delays: tuple[int, ...] = delay_levels(DELAY_LEVELS)
    filters: ConsumerFilters = NO_FILTERS
    chunk: int = scan_settings.CHUNK
    """bytes that are read, and mapped, at once"""

    def plan(self) -> list[LogRange]:
        """Return the ranges to read. Raises InputError for a folder that is no commitlog."""
        if self.bounds.empty:
            return []
        segments = list_segments(self.roots, self.segment_size).segments
        low, high = self.bounds.start_offset, self.bounds.end_offset
        followed = followed_by_data(segments)
        log_ranges: list[LogRange] = []
        end = segments[0].start if segments else 0
        names = {segment.start: segment.name for segment in segments}
        known = [index for root in self.roots if (index := committed_index(root)) >= 0]
        committed = known[0] if known else layouts.INT64_MAX
        for spec in ranges.cut_ranges(segments, self.range_size, high):
            missing = None
            if spec.low == spec.segment_start:
                if spec.low > end and spec.low > low:
                    missing = ranges.Hole(f"{end:020d}", max(end, low), spec.low - max(end, low), r.MISSING_SEGMENT)
                end = spec.segment_end
            # What stands in front of a record belongs to it.
            if spec.high > low - spec.lead:
                start = max(spec.low, low - spec.lead)
                cut = dataclasses.replace(spec, low=start, known=spec.known and start == spec.low)
                segment = spec.segment_start
                log_ranges.append(LogRange(cut, names[segment], followed[segment], missing, committed))
        return log_ranges

    @property
    def batches(self) -> MessageBatches:
        """What makes rows of the blocks."""
        return MessageBatches(
            self.schema, self.bounds.start_time, min(self.bounds.end_time - 1, layouts.INT64_MAX), self.unpack, self.filters
        )

    def rows(self, log_range: LogRange, holes: list[ranges.Hole]) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range in batches. At the end ``holes`` has its damage, in the order of the log."""
        batches = self.batches
        for block in self.blocks(log_range, holes):
            yield from batches.of_block(block)

    def blocks(
        self, log_range: LogRange, holes: list[ranges.Hole], ends: list[int] | None = None, way: ScanWay | None = None
    ) -> Iterator[scan_settings.Block]:
        """Yield the scanned blocks of one range, each valid until the next. At the end ``holes`` has its damage, likewise.

        Who ends it early has the damage before the last record in ``holes``. ``ends`` gets the offset behind the last record,
        wanted or not. With a ``way`` the scan begins where that stands, and blocks come without records, too; between two
        blocks, and at the end, the way is that up to there.
        """
        spec = log_range.spec
        holes += [log_range.missing] if log_range.missing else []
        with SegmentReader(spec.path, spec.segment_start, ahead=min(spec.high, spec.data_end)) as segment:
            before = self._walk_to(spec, segment) if way is None else way.before
            if before.end >= spec.high:
                return
            if before.end >= 0:
                spec = dataclasses.replace(spec, low=before.end, known=True, before=before.entries[4:])
            elif way is not None:
                spec = dataclasses.replace(spec, low=before.high, known=False, before=before.entries[4:])
            scanner = range_scan.RangeScanner(
                dataclasses.replace(self.settings, committed=log_range.committed, beats=way is not None)
            )
            end = LogEndSearch(log_range, before, looked=way is not None)
            if not end.before(spec.low):
                if way is not None:
                    way.before = dataclasses.replace(before, end=spec.segment_end)
            else:
                try:
                    for block in scanner.scan(spec, segment.read, segment.view):
                        cut = end.cut(block, scanner.summary)
                        if way is not None:
                            way.moved(before, scanner, cut)
                            if end.is_found:
                                # No record of the log lies behind these.
                                way.before.end = spec.segment_end
                        yield cut
                        if way is not None and end.is_found:
                            return
                    if way is not None:
                        way.ended(before, scanner.summary, spec.segment_end)
                finally:
                    holes += end.holes(holes_of(log_range, before, scanner.summary, self.bounds))
                    if ends is not None:
                        ends.append(end.of_log(scanner.summary))

    @property
    def settings(self) -> scan_settings.ScanSettings:
        """The settings of its scans."""
        return scan_settings.ScanSettings(
            crc_mode=self.crc, broker_version=self.broker_version, delays=self.delays, include=self.topics.include,
            exclude=self.topics.exclude, want_units=False, want_items=False, want_messages=True, want_digests=False,
            chunk=self.chunk, block_rows=BLOCK_ROWS,
        )  # fmt: skip

    def _walk_to(self, spec: ranges.RangeSpec, segment: SegmentReader) -> ranges.RangeSummary:
        """Return the summary of a scan up to the range, from the segment's start: a body may hold the image of any record."""
        if spec.known:
            return ranges.RangeSummary(-1, spec.low, spec.low, True, end=spec.low)
        settings = scan_settings.ScanSettings(
            CRC_NONE, self.broker_version, want_units=False, want_items=False, want_digests=False,
            search_crc=self.crc, block_rows=BLOCK_ROWS,
        )  # fmt: skip
        scanner = range_scan.RangeScanner(settings)
        way = dataclasses.replace(spec, low=spec.segment_start, high=spec.low, known=True)
        for _ in scanner.scan(way, segment.read, segment.view):
            pass
        return scanner.summary
